#!/usr/bin/env python3
"""Checks the tables and plots of launch/report: those of a run of the program, and of runs with known figures; runs that are
resumed, killed, half written, of other models, or none at all; names that mean harm; and what launch/export refuses
(tests/interop/wandb_run.py reads what it writes).

usage: report.py VIT_HYBRID [--long]

Plots are looked at through matplotlib's own objects, the page through an HTML parser and, where it is there, Chromium.
"""
import contextlib
import importlib.machinery
import importlib.util
import io
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import types
import unittest

sys.dont_write_bytecode = True
LAUNCH = pathlib.Path(__file__).resolve().parents[2] / "launch"
sys.path[:0] = [str(LAUNCH), str(LAUNCH.parent / "tests/support")]
loader = importlib.machinery.SourceFileLoader("report", str(LAUNCH / "report"))
report = importlib.util.module_from_spec(importlib.util.spec_from_loader("report", loader))
loader.exec_module(report)
import event_file  # noqa: E402
import matplotlib.image  # noqa: E402
import optimisation_plots  # noqa: E402
import run_plots  # noqa: E402
from checked_folder import check_runs  # noqa: E402
from comparison import QUANTITIES, compare  # noqa: E402
from report_damage import DamageTests  # noqa: E402
from report_fakes import (CLASSES, IS_LONG, STAND_IN_FOR_WANDB, MiB, PageReader, PlotCollector, bare_of, long_test,  # noqa: E402
                          rank_of, start_of, step_of, summary_of, valid_of, values_of)
from run_folder import Run, curves, name_apart  # noqa: E402
from tables import bytes_text, number_text, table_lines  # noqa: E402

PROGRAM = None


class ReportTest(DamageTests, unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.old_folder = os.getcwd()
        self.addCleanup(os.chdir, self.old_folder)
        os.chdir(self.folder)

    def write(self, name, records, summary=None, tail="", config="global_batch_size: 16\n"):
        os.makedirs(name, exist_ok=True)
        with open(f"{name}/metrics.jsonl", "w", encoding="utf-8") as file:
            file.write("".join(json.dumps(record) + "\n" for record in records) + tail)
        if summary is not None:
            with open(f"{name}/summary.json", "w", encoding="utf-8") as file:
                json.dump(summary, file)
        with open(f"{name}/config.yaml", "w", encoding="utf-8") as file:
            file.write(config)
        return name

    def make(self, name, steps=4, ranks=2, **keywords):
        """A finished run."""
        records = [start_of(dp=ranks), valid_of(0, 0), *map(step_of, range(1, steps + 1)),
                   {"kind": "epoch", "epoch": 1, "step": steps, "loss": 0.75, "duration": 2.0}, valid_of(steps, 1)]
        return self.write(name, records, summary_of(steps, ranks), **keywords)

    def call(self, *words, code=0):
        """What launch/report says; in this process, which has loaded matplotlib once."""
        said, complained, old_words = io.StringIO(), io.StringIO(), sys.argv
        sys.argv = [str(LAUNCH / "report"), *words]
        try:
            with contextlib.redirect_stdout(said), contextlib.redirect_stderr(complained), self.assertRaises(SystemExit) as ended:
                report.main()
        finally:
            sys.argv = old_words
        self.assertEqual(ended.exception.code or 0, code, said.getvalue() + complained.getvalue())
        return types.SimpleNamespace(stdout=said.getvalue(), stderr=complained.getvalue())

    def call_process(self, *words, code=0, **keywords):
        done = subprocess.run([sys.executable, str(LAUNCH / "report"), *words], capture_output=True, text=True, check=False,
                              encoding="utf-8", **keywords)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done

    def page(self, path="report.html"):
        """The page, after the checks that all pages must pass."""
        text = pathlib.Path(path).read_text(encoding="utf-8")
        page = PageReader(text)
        self.assertEqual(len(page.ids), len(set(page.ids)), "an id stands twice")
        self.assertEqual({link for link in page.links if not link.startswith("#")}, set(), "something lies outside of the page")
        self.assertEqual({link[1:] for link in page.links} - set(page.ids), set(), "a link without its target")
        self.assertFalse({"script", "img", "link", "iframe", "object"} & set(page.tags))
        return page

    def plots(self, *names):
        runs = [Run(name) for name in names]
        name_apart(runs)
        page = PlotCollector()
        run_plots.add_plots(page, runs)
        return page

    def cells(self, title, *names):
        """The rows of a table, by column."""
        runs = [Run(name) for name in names]
        name_apart(runs)
        header, rows = next((header, rows) for name, header, rows in report.tables_of(runs) if name == title)
        return [dict(zip(header, row)) for row in rows]

    # ---- figures -------------------------------------------------------------------------------------------------

    def test_tables(self):
        self.make("a")
        self.assertEqual(self.cells("Runs", "a"), [{
            "run": "a", "kind": "training", "state": "finished", "steps": 4, "task": "forecast", "parameters": 1000, "dp x tp x pp": "2 x 1 x 1",
            "ranks": 2, "nodes": 1, "precision": "fp32", "batch": "16 by 8"}])
        speed, = self.cells("Speed", "a")
        self.assertEqual((speed["samples/s"], speed["s/step"], speed["start s"]), (40.0, 0.5, 1.5))
        self.assertAlmostEqual(speed["data wait %"], 100 * 0.2 / 2.01, 2)
        self.assertAlmostEqual(speed["blocked %"], 100 * 0.8 / 2.01, 2)
        losses, = self.cells("Losses", "a")
        self.assertEqual((losses["training"], losses["of epoch"], losses["validation"], losses["after step"]), (0.75, 1, 0.25, 4))
        self.assertAlmostEqual(losses["RMSE"], 0.3)
        self.assertAlmostEqual(losses["ACC"], 0.85)
        self.assertNotIn("top-1 %", losses)
        self.assertEqual(self.cells("Memory of the fullest rank", "a"), [{
            "run": "a", "tensors": "10 MiB", "predicted": "19 MiB", "process": "100 MiB"}])

    def test_numbers_and_texts(self):
        self.assertEqual(table_lines(["run", "x", "y"], [["a", 1.5, None], ["bcd", None, "z"]]),
                         ["run    x  y", "a    1.5  -", "bcd    -  z"])
        for value, text in ((0.00012345678, "0.00012346"), (99999.96, "100000"), (1e-7, "1.0000e-07"), (0.0, "0"),
                            (12345678, "12345678"), (100.0, "100"), (-0.5, "-0.5"), (float("nan"), "nan")):
            self.assertEqual(number_text(value), text)
        self.assertEqual([bytes_text(n) for n in (0, 1023, 1024, 10111488, 3 << 50)],
                         ["0 B", "1023 B", "1 KiB", "9.64 MiB", "3072 TiB"])

    def test_spread_leaves_out_the_first_step(self):
        times = [9.0, 1.0, 2.0, 3.0, 4.0, 5.0]
        self.write("a", [start_of(), *(step_of(i + 1, seconds={"step": t}) for i, t in enumerate(times))], summary_of(6))
        speed, = self.cells("Speed", "a")
        self.assertEqual((speed["s/step"], speed["quartiles"]), (3.0, "2 to 4"))
        test = {"warm_up_steps": 3, "samples_per_s_spread": {"median": 4.0}}
        self.write("b", [start_of(), *(step_of(i + 1, seconds={"step": t}) for i, t in enumerate(times))], summary_of(6, test=test))
        speed, = self.cells("Speed", "b")
        self.assertEqual((speed["samples/s"], speed["s/step"], speed["quartiles"]), (4.0, 4.0, "3.5 to 4.5"), "those that the test counted")

    def test_bars_and_curves(self):
        self.make("a", steps=5, ranks=3)
        plots = self.plots("a")
        axes = plots.figures["Training loss of each step"].axes[0]
        self.assertEqual(list(axes.lines[0].get_ydata()), [1, 1 / 2, 1 / 3, 1 / 4, 1 / 5])
        self.assertEqual((axes.get_xlabel(), axes.get_ylabel()), ("step", "loss"))
        validation = plots.figures["Training loss by epoch"].axes[1]
        self.assertEqual((list(validation.lines[0].get_xdata()), list(validation.lines[0].get_ydata())), ([0, 1], [0.5, 0.25]))
        rmse = plots.figures["RMSE by epoch"].axes[0]
        self.assertAlmostEqual(rmse.lines[1].get_ydata()[0], 0.6)  # persistence
        # Seconds of a step, by phase and rank: what stands upon each other is the whole step.
        axes = plots.figures["Time of a step by phase and rank: a"].axes[0]
        bars = {bar.get_label(): values_of(bar) for bar in axes.containers}
        self.assertEqual(set(bars), {"data wait", "forward", "backward", "reduce", "optimizer", "waiting"})
        for rank in range(3):
            self.assertAlmostEqual(sum(values[rank] for values in bars.values()), 1.0 + rank / 100)
            self.assertAlmostEqual(bars["backward"][rank], 0.3)
            self.assertAlmostEqual(axes.lines[0].get_ydata()[rank], 0.4)  # blocked
            begin = 0.0
            for bar in axes.containers:
                self.assertAlmostEqual(bar[rank].get_y(), begin)
                begin += bar[rank].get_height()
        # Memory: a stack of what was predicted and one of what was measured for each rank.
        axes = plots.figures["Memory by class and rank: a"].axes[0]
        measured = {bar.get_label(): values_of(bar) for bar in axes.containers if not bar.get_label().startswith("_")}
        self.assertEqual(set(measured), set(CLASSES))
        self.assertAlmostEqual(measured["data"][2], 5 + 2 / 1024)
        predicted = [values_of(bar) for bar in axes.containers if bar.get_label().startswith("_")]
        self.assertAlmostEqual(sum(values[2] for values in predicted), 20 + 5 * 2 / 1024)
        self.assertEqual([list(line.get_ydata()) for line in axes.lines], [[19] * 3, [10, 10 + 1 / 1024, 10 + 2 / 1024]])
        self.assertGreater(axes.get_ylim()[1], 1.05 * (20 + 5 * 2 / 1024), "the mark at the longest bar is cut")
        by_name = {bar.get_label(): bar for bar in axes.containers}
        pale = next(bar for name, bar in by_name.items() if name.startswith("_"))
        self.assertEqual((pale[0].get_alpha(), by_name["data"][0].get_alpha()), (0.4, None))
        self.assertLess(pale[0].get_x() + pale[0].get_width() + 0.02, by_name["data"][0].get_x(), "the two touch")
        self.assertIn("pale:\npredicted", [text.get_text() for text in axes.get_legend().get_texts()])
        # A class looks alike whatever else is there, here without communication and packed weights.
        self.assertEqual({name: by_name[name][0].get_hatch() for name in CLASSES},
                         {"parameters": "", "gradients": "//", "optimizer": "\\\\", "activations": "", "data": "++"})
        # Communication: bytes of a step; an axis of one rank moves none.
        left, right = plots.figures["Bytes of a step by axis: a"].axes
        self.assertEqual([[patch.get_width() for patch in bars] for bars in left.containers], [[4.0], [4.0]])
        self.assertEqual([patch.get_width() for patch in right.containers[0]], [2.0])
        self.assertEqual([text.get_text() for text in right.texts], ["2.00 s"])
        left.figure.draw_without_rendering()
        ends = [axes.xaxis.get_ticklabels()[index].get_window_extent() for axes, index in ((left, -1), (right, 0))]
        self.assertGreater(ends[1].x0 - ends[0].x1, 8, "numbers of two axes meet")
        for figure in plots.figures.values():
            for axes in figure.axes:
                self.assertTrue(axes.get_title() and axes.get_xlabel(), "a plot without title or axis")

    def test_legends_are_whole(self):
        """Whatever the number of classes and of rows."""
        classes = run_plots.CLASSES
        ranks = [rank_of(0, 1)]
        for side in ("predicted", "peak"):
            ranks[0]["memory"][side] = {name: (i + 1) * MiB for i, name in enumerate(classes)}
        for name in ("a", "b"):
            self.write(name, [start_of(dp=1), step_of(1)], {**summary_of(1, 1), "ranks": ranks})
        plots = self.plots("a", "b")
        legend = plots.figures["Memory of the fullest rank by class"].axes[0].get_legend()
        self.assertEqual(len(legend.get_texts()), len(classes) + 2)
        for title, figure in plots.figures.items():
            figure.draw_without_rendering()
            for legend in filter(None, (axes.get_legend() for axes in figure.axes)):
                found, whole = legend.get_window_extent(), figure.bbox
                self.assertTrue(found.x1 <= whole.x1 and 0 <= found.y0 and found.y1 <= whole.y1, f"{title}: {found} in {whole}")

    def test_range_test(self):
        """Its dip is seen, and it spoils no other run's axes."""
        self.make("a")
        points = [[10.0 ** i, raw, smoothed] for i, raw, smoothed in ((-7, 1.0, 1.0), (-5, 0.6, 0.9), (-3, 0.5, 0.8), (1, 80.0, 5.2))]
        steps = [step_of(i + 1, loss=raw, lr=rate) for i, (rate, raw, _) in enumerate(points)]
        self.write("r", [start_of(), *steps], summary_of(4, find_lr={"steepest": 1e-5, "of_least_loss": 1e-3, "curve": points}),
                   config="find_lr: 4\ntest_steps: none\n")
        self.write("t", [start_of(), step_of(1)], summary_of(1), config="find_lr: none\ntest_steps: 1\n")
        self.assertEqual([row["kind"] for row in self.cells("Runs", "a", "r", "t")], ["training", "range test", "test"])
        plots = self.plots("a", "r")
        axes = plots.figures["Loss while the learning rate rises"].axes[0]
        raw, smoothed, fastest = axes.lines
        self.assertEqual((list(raw.get_ydata()), list(smoothed.get_ydata())), ([1.0, 0.6, 0.5, 80.0], [1.0, 0.9, 0.8, 5.2]))
        self.assertEqual((list(fastest.get_xdata()), raw.get_alpha()), ([1e-5, 1e-5], 0.35))
        self.assertTrue(0.4 < axes.get_ylim()[0] < 0.5 and 1.0 < axes.get_ylim()[1] < 1.5, axes.get_ylim())
        for title, most in ("Training loss of each step", 1.0), ("Learning rate", 0.04):
            self.assertEqual([max(line.get_ydata()) for line in plots.figures[title].axes[0].lines], [most])
        self.assertNotIn("Learning rate", self.plots("r").figures)
        self.call("r")
        self.assertNotIn("Losses", self.page().texts[self.page().texts.index("Plots"):])
        self.write("n", [start_of()], summary_of(4, find_lr={"steepest": None, "curve": [[1e-7, None, None]]}), config="find_lr: 4\n")
        self.assertNotIn("Loss while the learning rate rises", self.plots("n").figures)

    def test_energy_and_predicted_time(self):
        energy = {"source": "RAPL", "joules_per_sample": 1.25, "stages": {
            "training": {"seconds": 8.0, "joules": 400.0, "mean_watts": 50.0, "peak_watts": 60.0},
            "validation": {"seconds": 1.0, "joules": 30.0, "mean_watts": 30.0, "peak_watts": 31.0}},
            "within_step": {"forward": 30.0, "backward": 60.0, "rest": 10.0}}
        time = {"predicted": {"forward": 0.21, "step": 0.9, "messages": 0.1}, "measured": {"forward": 0.2, "step": 1.0}}
        rank = rank_of(0, 1)
        rank["memory"]["predicted"]["data"] = 7 * MiB
        self.write("a", [start_of(), step_of(1)], {**summary_of(1, energy=energy, time=time), "ranks": [rank]})
        self.write("b", [start_of(), step_of(1)], summary_of(1, energy={"unavailable": "no counter may be read"}))
        self.assertEqual([row["J/sample"] for row in self.cells("Speed", "a", "b")], [1.25, None])
        plots = self.plots("a", "b")
        for title, joules in (("Energy by stage", [[400.0], [30.0]]), ("Energy within steps by phase", [[30.0], [60.0], [10.0]])):
            self.assertEqual([[p.get_width() for p in bars] for bars in plots.figures[title].axes[0].containers], joules)
        pairs = plots.figures["Time of a step, predicted and measured: a"].axes[0].containers
        self.assertEqual({bars.get_label(): [p.get_width() for p in bars] for bars in pairs},
                         {"predicted": [0.21, 0.9], "measured": [0.2, 1.0]})
        self.assertIn("Of forward and backward 0.100 s were predicted to be messages.",
                      plots.captions["Time of a step, predicted and measured: a"])
        self.assertEqual(plots.figures["Energy within steps by phase"].axes[0].containers[-1].get_label(), "waiting")
        self.assertIn("Measured is the median step, ", plots.captions["Time of a step, predicted and measured: a"])
        done = self.call("a", "b")
        self.assertEqual(done.stderr, "report: b: energy: not available: no counter may be read\n")
        self.assertIn("\na: furthest from what was predicted: of memory data, 7 MiB predicted, 5 MiB measured (-28.6 %); of the time of a step "
                      "forward, 0.21 s predicted, 0.2 s measured (-4.76 %).\n", done.stdout)
        page = self.page()
        self.assertIn(done.stdout[done.stdout.index("a: furthest"):].partition("\n")[0], page.texts)
        self.assertIn(["a", "training", "8", "400", "50", "60"], page.tables[-1])
        self.assertIn("Energy of a: measured by RAPL.", page.texts)

    def test_wide_intervals(self):
        """One that is much wider than the differences that were measured leaves the others readable, and its end is marked."""
        def step(name, pairs):
            values = {1: {seed: 10.0 for seed in range(len(pairs))}, 2: {seed: 10.0 * (1 + pair) for seed, pair in enumerate(pairs)}}
            before, after = (types.SimpleNamespace(values=lambda key, n=n: values[n] if key == "samples_per_s" else {}) for n in values)
            found = {key: compare(before.values(key), after.values(key), quantity, 0.95, 0.01) for key, quantity in QUANTITIES.items()}
            return types.SimpleNamespace(rung=types.SimpleNamespace(name=name), before=before, after=after, found=found)
        axes, = optimisation_plots.plot_differences([step("wide", [-0.4, 0.4]), step("worse", [-0.1, -0.11])], 1.0).axes
        self.assertLess(axes.get_xlim()[1], 100)
        ends = {line.get_marker(): (line.get_xdata()[0], line.get_ydata()[0]) for line in axes.lines if line.get_marker() in "<>"}
        self.assertEqual(ends, {"<": (axes.get_xlim()[0], 0), ">": (axes.get_xlim()[1], 0)})
        cross, = (line for line in axes.lines if line.get_marker() == "X")
        self.assertEqual((list(cross.get_ydata()), cross.get_markeredgecolor()), ([1], "white"))

    def test_use_of_the_machine(self):
        self.make("a")
        with open("a/usage.jsonl", "w", encoding="utf-8") as file:
            for second in range(4):
                sample = {"kind": "usage", "stage": "training", "node": {"cpu_percent": 10.0 * second, "memory_bytes": second << 30},
                          "process": {"cpu_percent": 1.0, "resident_bytes": 5}, "time": 100.5 + second}
                file.write(json.dumps(sample) + "\n")
            file.write('{"kind":"usa')
        plots = self.plots("a")
        left, right = plots.figures["Processors at work"].axes
        self.assertEqual(left.lines[0].get_xydata().tolist(), [[second, 10.0 * second] for second in range(4)])
        self.assertEqual(right.lines[0].get_xydata().tolist(), [[second, second] for second in range(4)])
        self.assertNotIn("GPU at work", plots.figures)
        self.assertNotIn("Power of the processors", plots.figures)

    def test_batches_that_differ(self):
        self.make("a")
        self.write("b", [start_of(layout={"global_batch_size": 4}), *(step_of(i, samples=4) for i in range(1, 9))], summary_of(8))
        axes = self.plots("a", "b").figures["Training loss of each step"].axes[0]
        self.assertEqual(axes.get_xlabel(), "samples trained with")
        self.assertEqual([list(line.get_xdata())[-1] for line in axes.lines], [64, 32])
        # One that went on in a new folder trained with samples before, and one that lost a step with samples in between.
        self.write("c", [start_of(), {"kind": "resume", "step": 28}, step_of(29), step_of(30)], summary_of(30))
        self.write("d", [start_of(), step_of(1), step_of(2), step_of(4)], summary_of(4))
        axes = self.plots("b", "c", "d").figures["Training loss of each step"].axes[0]
        self.assertEqual([list(line.get_xdata()) for line in axes.lines], [list(range(4, 33, 4)), [16, 32]])

    def test_many_steps_are_thinned(self):
        self.write("a", [start_of(), *(step_of(i, loss=i % 10) for i in range(1, 4001))], summary_of(4000))
        line = self.plots("a").figures["Training loss of each step"].axes[0].lines[0]
        self.assertEqual(len(line.get_xdata()), 400)
        self.assertEqual(set(line.get_ydata()), {4.5})

    # ---- warnings ------------------------------------------------------------------------------------------------

    def test_losses_that_are_not_finite(self):
        self.write("a", [start_of(), step_of(1), step_of(2, loss=None), step_of(3, loss=float("nan")), step_of(4)], summary_of(4))
        self.assertEqual(self.call("a").stderr, "report: a: the loss of 2 steps is not finite, first at step 2\n")
        self.assertIn("a: the loss of 2 steps is not finite, first at step 2", self.page().texts)
        values = self.plots("a").figures["Training loss of each step"].axes[0].lines[0].get_ydata()
        self.assertEqual([value == value for value in values], [True, False, False, True])

    def test_who_was_slow(self):
        slow = {"kind": "straggler", "step": 3, "rank": 1, "host": "b", "slow": True, "from_step": 2, "to_step": None,
                "part": "backward", "seconds_per_step": 0.01, "percent": 16.25}
        link = {"kind": "network", "step": 4, "slow": True, "from_step": 3, "to_step": None, "seconds_per_step": 0.02,
                "percent": 20.0, "slow_link": True, "found": "b sends 5 MB/s, the others 11 MB/s"}
        steps = [step_of(step) for step in range(1, 6)]
        self.write("a", [start_of(), *steps[:3], slow, {**slow, "rank": 0, "percent": "much"}, steps[3], link, steps[4]])
        self.write("b", [start_of(), *steps[:3], slow, steps[3], {**slow, "step": 4, "slow": False, "to_step": 3}, steps[4]])
        told = [line for line in self.call("a", "b").stderr.splitlines() if "slow" in line]
        self.assertEqual(told, [
            "report: a: communication is slow since step 3: 20 % of a step, b sends 5 MB/s, the others 11 MB/s",
            "report: a: rank 1 on b is slow since step 2: 16.2 % of a step, backward",
            "report: b: rank 1 on b was slow in steps 2 to 3: 16.2 % of a step, backward"])
        many = [{**slow, "rank": rank} for rank in range(40)]
        self.write("c", [start_of(), *steps, *many])
        told = [line for line in self.call("c").stderr.splitlines() if "slow" in line]
        self.assertRegex(told[-1], r"^report: c: \d+ more times somebody was slow$")

    @long_test
    def test_different_models(self):
        self.make("a")
        self.make("b")
        self.write("c", [start_of(model={"task": "classify", "parameters": 77}), step_of(1),
                         {"kind": "valid", "step": 1, "epoch": 1, "loss": 1.0, "top1": 0.5, "top5": 0.875}], summary_of(1))
        done = self.call("a", "b", "c")
        warning = [line for line in done.stderr.splitlines() if "runs of different models, whose figures do not compare" in line]
        self.assertEqual(len(warning), 1)
        self.assertRegex(warning[0], r": a, b: forecast, .* 1000 parameters; c: classify, .* 77 parameters$")
        page = self.page()
        self.assertIn(warning[0].removeprefix("report: "), page.texts)
        groups = report.by_model([Run(name) for name in "abc"])
        self.assertEqual([[run.label for run in group] for group in groups], [["a", "b"], ["c"]])
        self.assertEqual(page.texts.count("Training loss of each step"), 2)
        self.assertEqual(self.cells("Losses", "a", "c")[1]["top-5 %"], 87.5)

    def test_different_machines(self):
        for name, gpu in ("a", {}), ("b", {"GPU": "H200"}), ("c", {"GPU": "H200"}), ("d", {"GPU": "A100"}):
            self.write(name, [start_of(kernels=gpu), step_of(1)], bare_of(1))
        self.assertEqual(self.call("b", "c", "--no-page").stderr, "")
        told = self.call("a", "b", "c", "d", "--no-page").stderr
        self.assertEqual(told, "report: runs on different processors or GPUs, so times do not compare: a: A; b, c: A with H200; "
                         "d: A with A100\n")

    def test_options_and_data_that_differ(self):
        run = [start_of(), step_of(1)]
        self.write("a", run, bare_of(1), config='# General\nlr: 0.1      # command line\ntrain_data: "x # y"\nrun_dir: a\n')
        self.write("b", run, bare_of(1), config='lr: 0.2\ntrain_data: "z"\nrun_dir: b\n')
        self.assertIn("report: runs with different data (train_data): ", self.call("a", "b").stderr)
        self.assertEqual(self.page().tables[-1], [["run", "lr", "train_data"], ["a", "0.1", "x # y"], ["b", "0.2", "z"]])
        self.write("c", run, bare_of(1), config='lr: 0.3\ntrain_data: "z"\nseed: 2\nrun_dir: c\n')
        self.call("b", "c")
        self.assertEqual(self.page().tables[-1][0], ["run", "lr", "seed"], "as many options as runs")
        self.write("c", run, bare_of(1), config='lr: 0.3\ntrain_data: "z"\nseed: 2\nbeta1: 0.8\nrun_dir: c\n')
        self.call("b", "c")
        self.assertEqual(self.page().tables[-1],
                         [["option", "b", "c"], ["lr", "0.2", "0.3"], ["seed", "-", "2"], ["beta1", "-", "0.8"]])

    def test_damaged_options(self):
        self.make("a")
        for config, what in (("::: [\n", "its"), ("", "its"), ("lr: 0.1\nseed", "some of its")):
            self.make("b", config=config)
            self.assertEqual(self.call("a", "b").stderr, f"report: b/config.yaml is damaged: {what} options are not known\n")

    # ---- command line ------------------------------------------------------------------------------------------------

    def test_what_is_no_run(self):
        self.make("runs/a")
        pathlib.Path("file").write_text("x", encoding="utf-8")
        for name, why in (("none", "it is not there"), ("file", "it is no folder"),
                          ("runs", "it has no metrics.jsonl and no summary.json; it holds runs: runs/a, ...")):
            done = self.call(name, code=66)
            self.assertEqual(done.stderr, f"report: '{name}' is no run: {why}: left out\nreport: no run to report\n")
        self.assertFalse(os.path.exists("report.html"))
        done = self.call("runs/a", "none", "--no-page", code=66)
        self.assertIn("finished", done.stdout)
        self.assertEqual(done.stderr, "report: 'none' is no run: it is not there: left out\n")
        self.assertRegex(self.call(code=64).stderr, r"\Areport: [^\n]*RUN[^\n]*--help lists the options\n\Z")

    def test_what_pages_need(self):
        """One version of matplotlib in all texts of help."""
        for script in "report", "scaling_study", "zero_memory_study", "optimisation_study":
            done = subprocess.run([LAUNCH / script, "--help"], capture_output=True, text=True, check=True)
            self.assertEqual(re.findall(r"matplotlib (\d\S+)", done.stdout), ["3.6"], script)

    def test_names(self):
        for name in ("x/a/run", "x/b/run", "c"):
            self.make(name)
        self.assertEqual([row["run"] for row in self.cells("Runs", "x/a/run", "x/b/run", "c")], ["a/run", "b/run", "c"])
        self.assertEqual(self.call("c", "c/", "x/../c", "--no-page").stdout.count("finished"), 1, "one folder is three runs")

    def test_names_that_mean_harm(self):
        names = ['<script>alert("1")</script>'.replace("/", "\\"), "_$x^2$_", "a\x1b[2Jb", "c\nd", "e\u202ef", '"><svg onload=x>',
                 "n" * 200, "$\\frac{1}$", "g\udcff"]
        for name in names:
            self.write(name, [start_of(), step_of(1)], bare_of(1), config=f'lr: "<b>{len(name)}"\n')
        done = self.call(*names)
        self.assertNotRegex(done.stdout + done.stderr, "[\x1b\u202e]")
        self.assertEqual(done.stderr, "")
        page = self.page()
        self.assertIn(names[0].encode("unicode_escape").decode().replace("\\\\", "\\"), page.tables[0][1][0])
        self.assertNotIn("onload", [name for name in page.tags])
        self.assertIn("_$x^2$_", "".join(page.texts))

    def test_files_that_are_there(self):
        self.write("a", [start_of()], bare_of(0))
        for _ in range(2):
            self.assertIn("wrote new.html", self.call("a", "--out", "new.html").stdout)
        pathlib.Path("mine.html").write_text("<p>mine", encoding="utf-8")
        done = self.call("a", "--out", "mine.html", code=73)
        self.assertRegex(done.stderr, r"\Areport: 'mine.html': something is there that is no page of vit_hybrid; [^\n]*--force\n")
        self.assertEqual(done.stderr.count("\n"), 1)
        self.assertEqual(pathlib.Path("mine.html").read_text(encoding="utf-8"), "<p>mine")
        self.call("a", "--out", "mine.html", "--force")
        self.page("mine.html")
        os.makedirs("folder")
        for path in ("none/x.html", "folder"):
            done = self.call("a", "--out", path, code=73)
            self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        self.assertEqual(sorted(os.listdir()), ["a", "folder", "mine.html", "new.html"])

    def test_without_matplotlib(self):
        self.make("a")
        os.makedirs("stub")
        pathlib.Path("stub/matplotlib.py").write_text("raise ImportError('no matplotlib here')", encoding="utf-8")
        environment = {**os.environ, "PYTHONPATH": os.path.abspath("stub")}
        done = self.call_process("a", code=66, env=environment)
        self.assertEqual(done.stderr, "report: no page: no matplotlib here; install what it needs: apt-get install python3-matplotlib, or "
                         "pip install matplotlib; --no-page does without\n")
        self.assertEqual(done.stdout.count("finished"), 1)
        self.assertIn("finished", self.call_process("a", "--no-page", env=environment).stdout)
        self.assertFalse(os.path.exists("report.html"))
        self.assertIn("--no-page", self.call_process("--help", env=environment).stdout)

    def test_without_h5py(self):
        os.makedirs("stub")
        pathlib.Path("stub/h5py.py").write_text("raise ImportError('no h5py here')", encoding="utf-8")
        done = subprocess.run([LAUNCH / "zero_memory_study", "--dp=13", "--tp=5", "--out=study"], capture_output=True, text=True,
                              check=False, env={**os.environ, "PYTHONPATH": os.path.abspath("stub")})
        self.assertEqual(done.stderr, "zero_memory_study: no h5py here; install what it needs: apt-get install python3-h5py, or "
                         "pip install h5py\n")
        self.assertEqual((done.returncode, os.path.exists("study")), (66, False))

    def test_what_wandb_is_given(self):
        self.write("a", [start_of(), step_of(1)], summary_of(1, usage=[{"rank": 0}]))
        os.makedirs("stub")
        pathlib.Path("stub/wandb.py").write_text(STAND_IN_FOR_WANDB, encoding="utf-8")
        subprocess.run([sys.executable, str(LAUNCH / "export"), "a", "--wandb"], check=True, capture_output=True,
                       env={**os.environ, "PYTHONPATH": os.path.abspath("stub")})
        written = json.loads(pathlib.Path("written.json").read_text(encoding="utf-8"))
        self.assertEqual(set(written), set(summary_of(1)) - {"ranks"})

    def test_export_without_wandb(self):
        self.make("a", config=":::")
        os.makedirs("stub")
        pathlib.Path("stub/wandb.py").write_text("raise ImportError('no wandb here')", encoding="utf-8")
        environment = {**os.environ, "PYTHONPATH": os.path.abspath("stub")}
        for words, code, line in ((["a", "--wandb"], 66, "no wandb here; install what it needs: pip install wandb"),
                                  (["none", "--wandb"], 66, "'none' is no run: it is not there"),
                                  (["a", "--wandb", "--out", "a/config.yaml"], 73, "--out is 'a/config.yaml': Not a directory"),
                                  (["a"], 64, "the following arguments are required: --wandb; --help lists the options")):
            done = subprocess.run([sys.executable, str(LAUNCH / "export"), *words], capture_output=True, text=True, check=False,
                                  env=environment)
            self.assertEqual((done.returncode, done.stdout, done.stderr), (code, "", f"export: {line}\n"))

    # ---- many ----------------------------------------------------------------------------------------------------

    @long_test
    def test_many_ranks(self):
        for ranks in (64, 4096):
            self.make(f"r{ranks}", ranks=ranks)
        self.assertEqual(len(self.plots("r64").figures["Time of a step by phase and rank: r64"].axes[0].containers[0]), 64)
        plots = self.plots("r4096")
        bars = plots.figures["Time of a step by phase and rank: r4096"].axes[0].containers[0]
        self.assertEqual(len(bars), 64)
        self.assertIn("groups of 64 neighbours", plots.captions["Time of a step by phase and rank: r4096"])
        # The last rank of each group is its slowest.
        other = plots.figures["Time of a step by phase and rank: r4096"].axes[0].containers[-1]
        self.assertAlmostEqual(values_of(other)[0], 1 + 63 / 100 - 0.7)
        self.call("r4096")
        self.page()
        self.assertLess(os.path.getsize("report.html"), 2e6)

    def test_ranks_file_that_is_none(self):
        try:
            import h5py
        except ImportError:
            self.skipTest("there is no h5py")

        def with_texts(ranks, texts, values=(0, 0)):
            ranks.create_dataset("host", data=values).attrs["texts"] = texts
        cases = [lambda file: with_texts(file.create_group("ranks"), b"a", (0, 7)), lambda file: file.create_dataset("ranks", data=[0, 1]),
                 lambda file: with_texts(file.create_group("ranks"), b"[1,"), lambda file: with_texts(file.create_group("ranks"), b"\xff"),
                 lambda file: with_texts(file.create_group("ranks"), b"[" * 60000),
                 lambda file: file.create_group("ranks").create_dataset("rank", data=3),
                 lambda file: file.create_group("ranks").create_dataset("rank", data=h5py.Empty("f"))]
        for number, fill in enumerate([*cases, None]):
            run = pathlib.Path(self.make(f"run{number}"))
            summary = json.loads((run / "summary.json").read_text())
            (run / "summary.json").write_text(json.dumps({**{k: v for k, v in summary.items() if k != "ranks"}, "ranks_file": "ranks.h5"}))
            if fill is None:
                os.mkfifo(run / "ranks.h5")
            else:
                with h5py.File(run / "ranks.h5", "w") as file:
                    fill(file)
            said = self.call(str(run), "--no-page")
            self.assertIn("ranks.h5 is not read: ", said.stdout + said.stderr)

    def test_interrupted_while_it_loads(self):
        pathlib.Path("matplotlib.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n")
        run = self.make("run")
        for words in ["report", run], ["scaling_study", "--ranks=1"], ["zero_memory_study", "--dp=1"], ["optimisation_study"]:
            done = subprocess.run([LAUNCH / words[0], *words[1:]], env={**os.environ, "PYTHONPATH": self.folder}, capture_output=True,
                                  text=True, check=False, timeout=60)
            self.assertEqual((done.returncode, done.stderr), (-2, ""), words)
        os.remove("matplotlib.py")

    def test_many_runs(self):
        names = [self.make(f"run-{i:03}", steps=1, ranks=1) for i in range(60)]
        plots = self.plots(*names)
        axes = plots.figures["Training loss of each step"].axes[0]
        self.assertEqual(len(axes.lines), 60)
        self.assertEqual([text.get_text() for text in axes.get_legend().get_texts()], [*names[:10], "50 others"])
        self.assertIn("first 40 of 60 runs", plots.captions["Time of a step by phase"])
        self.assertEqual(len(self.cells("Runs", *names)), 60)

    # ---- the program, and the browser ------------------------------------------------------------------------------

    def test_run_of_the_program(self):
        train = [PROGRAM, "--embed-dim=32", "--depth=1", "--num-heads=2", "--generated-samples=32", "--generated-valid-samples=8",
                 "--global-batch-size=8", "--device=cpu", "--threads=1", "--run-dir=run"]
        for words in (["--steps=4"], ["--steps=10", "--resume=auto"]):
            subprocess.run([*train, *words], check=True, capture_output=True)
        check_runs(self.folder)
        done = self.call("run")
        self.assertEqual(done.stderr, "")
        summary = json.loads(pathlib.Path("run/summary.json").read_text(encoding="utf-8"))
        run, = self.cells("Runs", "run")
        self.assertEqual((run["state"], run["steps"], run["ranks"], run["dp x tp x pp"]), ("finished", 10, 1, "1 x 1 x 1"))
        speed, = self.cells("Speed", "run")
        self.assertEqual(speed["samples/s"], summary["samples_per_s"])
        losses, = self.cells("Losses", "run")
        self.assertEqual((losses["training"], losses["validation"]), (summary["epochs"][-1]["loss"], summary["final"]["loss"]))
        # Without its summary the same is found in the records.
        os.remove("run/summary.json")
        self.assertEqual(self.cells("Speed", "run")[0]["samples/s"], summary["samples_per_s"])
        # The curves that launch/export writes have the points of the event files.
        points = [(step, tag) for step, tag, _ in event_file.values_of_folder("run/tensorboard")]
        self.assertEqual(sorted(points), sorted((step, tag) for step, _, values in curves(Run("run").records) for tag in values))
        epochs = {step: values["Avg iters per sec"] for step, _, values in curves(Run("run").records) if "Loss/train" in values}
        durations = {epoch["step"]: epoch["duration"] for epoch in Run("run").epochs}
        self.assertEqual(epochs, {4: 4 / durations[4], 8: 4 / durations[8], 10: 2 / durations[10]})
        page = self.page()
        for title in ("Training loss of each step", "Validation loss by epoch", "RMSE by epoch", "Learning rate", "Throughput",
                      "Time of a step by phase and rank: run", "Memory by class and rank: run"):
            self.assertIn(title, page.texts)

    @long_test
    def test_browser(self):
        browser = shutil.which("chromium")
        if not browser:
            self.skipTest("there is no chromium")
        self.make("a")
        self.call("a")
        done = subprocess.run([browser, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
                               f"--user-data-dir={self.folder}/browser", "--window-size=1200,3500", "--screenshot=page.png",
                               f"file://{self.folder}/report.html"], capture_output=True, check=False, timeout=120)
        self.assertTrue(os.path.exists("page.png"), done.stderr.decode(errors="replace")[-1000:])
        pixels = (matplotlib.image.imread("page.png")[:, :, :3] * 255).round().astype(int).reshape(-1, 3)
        colours = set(map(tuple, pixels[::7].tolist()))
        for fill in run_plots.bar_style(0), run_plots.bar_style(1), run_plots.bar_style(2):
            self.assertIn(tuple(int(fill["facecolor"][i:i + 2], 16) for i in (1, 3, 5)), colours, "a class of bars is not seen")


if __name__ == "__main__":
    PROGRAM = os.path.abspath(sys.argv.pop(1))
    if IS_LONG:
        sys.argv.remove("--long")
    unittest.main()
