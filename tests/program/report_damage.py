"""What runs leave behind when things go wrong: tests of tests/program/report.py, whose class has what they call."""
import json
import os
import pathlib
import shutil
import subprocess
import sys

from report_fakes import MiB, bare_of, long_test, rank_of, start_of, step_of, summary_of, valid_of, values_of
from run_folder import Run

LAUNCH = pathlib.Path(__file__).resolve().parents[2] / "launch"


class DamageTests:
    def test_steps_that_come_again(self):
        records = [start_of(), *(step_of(i, loss=100.0) for i in range(1, 6)), valid_of(5, 1),
                   start_of(dp=1), {"kind": "resume", "step": 2}, *(step_of(i, samples_per_s=8.0) for i in (3, 4))]
        self.write("a", records, tail='{"kind":"step","step":5,"lo')
        run = Run("a")
        self.assertEqual([(step["step"], step["loss"]) for step in run.steps], [(1, 100.0), (2, 100.0), (3, 1 / 3), (4, 1 / 4)])
        self.assertEqual((run.valids, run.layout_text(), run.state, len(run.new_steps)), ([], "1 x 1 x 1", "unfinished", 2))
        self.assertEqual(self.cells("Speed", "a")[0]["samples/s"], 8.0)
        done = self.call("a")
        self.assertEqual(done.stderr.splitlines(), [
            "report: a/metrics.jsonl, line 12 is no record (half a line of a run that was killed?): left out",
            "report: a has no summary.json: it is going on or was killed, so nothing is known of memory, communication and the "
            "ranks' times"])
        self.assertNotIn("Memory", self.page().texts)
        # A start that does not resume begins anew; a record that stands twice counts as it stands last.
        self.write("b", [start_of(), step_of(1), step_of(2), start_of(), step_of(1, loss=7.0), step_of(1, loss=8.0)])
        self.assertEqual([step["loss"] for step in Run("b").steps], [8.0])

    def test_seconds_of_a_later_part(self):
        """The ranks' seconds are those of the last part, of two steps here."""
        self.write("a", [start_of(), step_of(1), step_of(2), start_of(), {"kind": "resume", "step": 2}, step_of(3), step_of(4)],
                   {**summary_of(4), "ranks": [rank_of(0, 2)]})
        axes = self.plots("a").figures["Time of a step by phase and rank: a"].axes[0]
        self.assertAlmostEqual(sum(values_of(bars)[0] for bars in axes.containers), 1.0)

    def test_summary_of_an_earlier_part(self):
        for name, further in (("a", [step_of(3)]), ("b", [])):
            self.write(name, [start_of(), step_of(1), step_of(2), start_of(), {"kind": "resume", "step": 2}, *further],
                       summary_of(2))
            self.assertIn("summary.json is of an earlier part of the run", self.call(name, "--no-page").stderr)
            self.assertEqual(self.cells("Runs", name)[0]["state"], "unfinished")
        self.write("c", [start_of(), step_of(1)], {**summary_of(1), "interrupted": True})
        self.assertEqual(self.cells("Runs", "c")[0]["state"], "interrupted")

    def test_old_summary_of_as_many_steps(self):
        """The later part did the same steps again, and was killed before its summary."""
        self.write("a", [start_of(), step_of(1), step_of(2), start_of(time=1000.0), {"kind": "resume", "step": 1}, step_of(2)],
                   summary_of(2))
        for written, state in ((990, "unfinished"), (1010, "finished")):
            os.utime("a/summary.json", (written, written))
            self.assertEqual(Run("a").state, state)

    def test_half_a_summary(self):
        self.make("a")
        text = pathlib.Path("a/summary.json").read_text(encoding="utf-8")
        pathlib.Path("a/summary.json").write_text(text[:len(text) // 2], encoding="utf-8")
        self.assertEqual(self.call("a").stderr, "report: a/summary.json is no JSON, perhaps half of it: left out\n")
        self.page()

    @long_test
    def test_files_that_would_be_waited_for(self):
        for name in ("metrics.jsonl", "summary.json", "config.yaml", "usage.jsonl"):
            self.make("a")
            pathlib.Path("a", name).unlink(missing_ok=True)
            os.mkfifo(f"a/{name}")
            done = self.call_process("a", timeout=20)
            self.assertIn(f"a/{name}: not a regular file", done.stderr)
            shutil.rmtree("a")
        os.mkfifo("a.html")
        self.make("a")
        self.assertIn("that is no page", self.call_process("a", "--out", "a.html", code=73, timeout=20).stderr)

    def test_numbers_beyond_a_double(self):
        """Which JSON may have, as whole numbers: they are not known."""
        huge = 10 ** 400
        rank = rank_of(0, 4)
        rank["memory"]["predicted"]["data"] = rank["memory"]["predicted_total"] = rank["memory"]["process_peak"] = huge
        self.write("a", [start_of(), *(step_of(i, lr=huge) for i in (1, 2, 3, 4)), valid_of(4, 1, acc={"u": huge, "v": 0.5})],
                   {**summary_of(4, 1), "ranks": [rank]})
        self.call("a")
        self.assertNotIn("predicted", self.cells("Memory of the fullest rank", "a")[0])

    def test_steps_that_were_lost(self):
        self.write("a", [start_of(), step_of(1), step_of(4)], summary_of(4))
        self.assertEqual(self.call("a").stderr, "report: a/metrics.jsonl has 2 of 4 steps: the others were not written, or are lost\n")

    def test_losses_beyond_any_scale(self):
        self.write("a", [start_of(), step_of(1), step_of(2, loss=9e289), step_of(3, loss=9e199)], summary_of(3))
        self.call("a")
        self.page()

    def test_other_versions(self):
        """Keys that are not there, are of other types, or are new."""
        self.write("old", [{"kind": "start"}, {"kind": "step", "step": 1, "loss": "x"}, {"kind": "step", "step": [1]},
                           {"kind": "news"}, {"kind": "valid", "step": 1, "epoch": 1, "rmse": {"u": None}}, {"kind": 3}, [], "x"],
                   {"steps": 1, "ranks": [{"rank": 0, "memory": {"peak": {"x": 1, "new_class": MiB}, "total_peak": MiB}}, 7],
                    "communication": [{"axis": "data"}, None], "energy": 3, "time": []})
        self.make("new")
        done = self.call("old", "new")
        self.assertIn("runs of different versions of the program: old: unknown; new: 0.1.0 0123456789\n", done.stderr)
        self.page()
        for name in ("empty", "nothing"):
            self.write(name, [], {} if name == "nothing" else None)
            self.call(name)
            self.page()

    def test_one_line_a_file(self):
        """However much of it is damaged."""
        self.make("a")
        with open("a/metrics.jsonl", "ab") as file:
            file.write(b"\x80\xff\n" * 5000)
        pathlib.Path("a/usage.jsonl").write_text('{"kind":"usa', encoding="utf-8")
        done = self.call("a")
        self.assertEqual(done.stderr, "report: a/metrics.jsonl: 5000 lines are no records, the first is line 9: left out\n"
                         "report: a/usage.jsonl, line 1 is no record (half a line of a run that was killed?): left out\n")
        self.assertIn(f"Note: {done.stderr.splitlines()[1][8:]}.", self.page().texts)

    def test_summary_without_its_keys(self):
        self.make("a")
        for summary, missing in ({"steps": 4}, "interrupted, communication, ranks"), ({**bare_of(4), "interrupted": None}, ""):
            pathlib.Path("a/summary.json").write_text(json.dumps(summary), encoding="utf-8")
            self.assertEqual(self.call("a", "--no-page").stderr, missing and f"report: a/summary.json is not whole: it has no {missing}; what "
                             "is left of it is taken\n")

    def test_export_of_nothing(self):
        self.make("a")
        pathlib.Path("a/metrics.jsonl").write_bytes(bytes(range(128, 256)) * 9)
        done = subprocess.run([sys.executable, str(LAUNCH / "export"), "a", "--wandb"], capture_output=True, text=True, check=False)
        self.assertEqual((done.returncode, done.stderr), (65, "export: 'a' has no record that can be read in its metrics.jsonl, so there "
                                                          "is nothing to export\n"))
        self.assertEqual(os.listdir(), ["a"])
