#!/usr/bin/env python3
"""Energy and samples of runs (usage.jsonl, summary.json), on energy counters that are made here.

usage: usage.py PROGRAM LAUNCHER WORDS...     the launcher's words end with the option that takes the number of ranks
"""
import json
import os
import pathlib
import subprocess
import sys
import threading

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from checked_folder import CheckedFolder  # noqa: E402

SMALL = ["--depth=1", "--embed-dim=32", "--num-heads=2", "--generated-samples=32", "--generated-valid-samples=8",
         "--global-batch-size=8", "--epochs=2", "--device=cpu", "--threads=1", "--dp=2", "--usage-interval=0.1"]
JOULE = 1_000_000  # what the counters count
STAGES = ["start", "training", "validation", "saving"]


def require(holds, what):
    if not holds:
        sys.exit(f"FAILED: {what}")


class Counters(threading.Thread):
    """Two packages; one rises by a joule each 10 ms until stop(), the other stands still."""

    def __init__(self, folder):
        super().__init__()
        self.folder, self.joules, self.ends = pathlib.Path(folder), 0, threading.Event()
        for number in range(2):
            zone = self.folder / f"intel-rapl:{number}"
            zone.mkdir(parents=True)
            (zone / "name").write_text(f"package-{number}\n", encoding="ascii")
            (zone / "max_energy_range_uj").write_text(f"{1 << 40}\n", encoding="ascii")
            (zone / "energy_uj").write_text("7\n", encoding="ascii")

    def run(self):
        zone = self.folder / "intel-rapl:0"
        while not self.ends.wait(0.01):
            self.joules += 1
            (zone / "next").write_text(f"{self.joules * JOULE}\n", encoding="ascii")
            os.replace(zone / "next", zone / "energy_uj")

    def stop(self):
        self.ends.set()
        self.join()


def finished(command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    require(done.returncode == 0, f"{' '.join(command)} ended with {done.returncode}: {done.stderr[-600:]}")
    return done


def samples_of(run):
    return [json.loads(line) for line in (run / "usage.jsonl").read_text(encoding="utf-8").splitlines()]


def check_samples(run, summary):
    samples = samples_of(run)
    require([s["time"] for s in samples] == sorted(s["time"] for s in samples), "the samples are not in order")
    require({s["stage"] for s in samples} <= set(STAGES), "a stage is not known")
    for sample in samples:
        require(0 <= sample["node"]["cpu_percent"] <= 100 and sample["process"]["resident_bytes"] > 1 << 20, f"{sample}")
    usage = summary["usage"]
    require(len(usage) == 1 and usage[0]["rank"] == 0, f"more than the first rank of the node has looked: {usage}")
    require(usage[0]["samples"] >= len(samples), "there are more samples than were counted")
    most = max(s["process"]["resident_bytes"] for s in samples)
    require(usage[0]["process"]["resident_bytes"]["max"] >= most, "the maximum is less than a sample")
    return samples


def main():
    program, launcher = sys.argv[1], sys.argv[2:] + ["2"]
    with CheckedFolder() as work:
        work = pathlib.Path(work)
        counters = Counters(work / "counters")
        counters.start()
        run = work / "run"
        words = [*launcher, program, *SMALL, f"--energy-counters={counters.folder}"]
        done = finished([*words, f"--run-dir={run}"])
        counters.stop()
        summary = json.loads((run / "summary.json").read_text(encoding="utf-8"))
        check_samples(run, summary)
        energy = summary["energy"]
        stages = energy["stages"]
        require(energy["source"] == "processor packages (powercap)" and list(stages) == STAGES, f"{energy}")
        joules = [stage["joules"] for stage in stages.values()]
        # The first rise may be from 7 uJ, which is no whole joule.
        require(all(abs(j - round(j)) < 1e-4 for j in joules), f"the stages have {joules} of a counter of whole joules")
        require(0 < sum(joules) <= counters.joules, f"{sum(joules)} J were counted, {counters.joules} J were there")
        for name, stage in stages.items():
            require(abs(stage["mean_watts"] * stage["seconds"] - stage["joules"]) < 1e-6, f"{name}: {stage}")
            require(stage["peak_watts"] >= stage["mean_watts"] - 1e-9, f"{name}: {stage}")
        require(abs(energy["joules_per_sample"] - stages["training"]["joules"] / 64) < 1e-9, "joules a sample")
        require(abs(sum(energy["within_step"].values()) - stages["training"]["joules"]) < 1e-6, "joules within a step")
        require(f"energy: start {stages['start']['joules']:g} J" in done.stdout, "no line tells of the energy")

        # A run that goes on adds to its samples, and its summary tells of what it did alone.
        before = len(samples_of(run))
        finished([*words, f"--run-dir={run}", "--resume=latest", "--epochs=100"])  # longer than a sample takes
        require(len(samples_of(run)) > before, "the run that went on has no samples")
        again = json.loads((run / "summary.json").read_text(encoding="utf-8"))["energy"]
        require(again == {"unavailable": "the counter stands still"}, f"a counter that stands still: {again}")

        # A counter that cannot be read, none, and none wanted.
        (counters.folder / "intel-rapl:1/energy_uj").write_text("?", encoding="ascii")
        for name, options, reason in (
                ("unreadable", [], "intel-rapl:1/energy_uj holds no counter: '?'"),
                ("none", [f"--energy-counters={work}/nowhere"], f"no processor's energy counter in {work}/nowhere"),
                ("off", ["--usage-interval=off"], "--usage-interval is off")):
            done = finished([*words, f"--run-dir={work / name}", "--epochs=1", *options])
            line = next(line for line in done.stdout.splitlines() if line.startswith("energy: "))
            require(line.startswith("energy: not known; ") and reason in line, f"{name}: said is {line}")
            summary = json.loads((work / name / "summary.json").read_text(encoding="utf-8"))
            require(reason in summary["energy"]["unavailable"], f"{name}: {summary['energy']}")
            require((work / name / "usage.jsonl").exists() == ("usage" in summary) == (name != "off"), f"{name}: samples")
    print("usage: passed")


if __name__ == "__main__":
    main()
