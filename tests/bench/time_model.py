#!/usr/bin/env python3
"""Predicts the time of a step of random trainings and sets the measured one beside it.

    time_model.py PROGRAM COUNT OUT.json LAUNCHER WORDS...

Calibrates this machine, with one rank of all cores and with one rank a core (into OUT.json's folder, unless machine.json is
there already), draws COUNT trainings by seed, none of whose sizes were calibrated on, and prints for each what
`plan --machine` predicts and what the median of the steps of `--test-steps` was. At the end the share of the trainings that
were predicted within 10 %, and the errors by kind. A busy machine makes it say so: the load beside a training is printed.
The launcher's words end with the option that takes the number of ranks.
"""
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

MODELS = {
    "vit-s16": {"preset": "vit-s16"},
    "weather-512": {"task": "forecast", "image-size": "128x256", "patch-size": 8, "in-channels": 6, "out-channels": 6,
                    "embed-dim": 256, "depth": 6, "num-heads": 8, "mlp-hidden": 1024},
    "weather-128": {"task": "forecast", "image-size": "64x128", "patch-size": 8, "in-channels": 4, "out-channels": 4,
                    "embed-dim": 576, "depth": 4, "num-heads": 9, "mlp-hidden": 2304},
}
SECONDS = 6.0  # of steps, about, a training


def draw(rng):
    model = rng.choice(list(MODELS))
    layout = rng.choice(["threads", "dp", "tp", "pp"])
    micro_batch = rng.choice([1, 2, 8])
    degrees = {"dp": 1, "tp": 1, "pp": 1}
    if layout != "threads":
        degrees[layout] = 2
    micro_batches = rng.choice([2, 4]) if layout == "pp" else rng.choice([1, 2])
    options = {**MODELS[model], **degrees, "precision": rng.choice(["fp32", "bf16"]), "micro-batch-size": micro_batch,
               "global-batch-size": degrees["dp"] * micro_batch * micro_batches, "zero": rng.choice([0, 1]),
               "recompute": rng.choice(["none", "selective", "full"]), "data": "synthetic",
               "threads": 2 if layout == "threads" else 1}
    return model, layout, options


def words(options):
    return [word for name, value in options.items() for word in (f"--{name}", str(value))]


def output(command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}\nended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def main():
    program, count, out, launcher = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]), sys.argv[4:]
    cores = len(os.sched_getaffinity(0))
    if cores != 2:
        sys.exit(f"it is for machines of two cores, this one has {cores}")
    machine = out.parent / "machine.json"
    if not machine.exists():
        for ranks, threads in ((1, 2), (2, 1)):
            os.environ["OMP_NUM_THREADS"] = str(threads)
            print(output([*launcher, str(ranks), program, "calibrate", "--threads", str(threads), "--out", str(machine)]),
                  end="", flush=True)
    rng = random.Random(20261124)
    points = []
    for number in range(count):
        model, layout, options = draw(rng)
        os.environ["OMP_NUM_THREADS"] = str(options["threads"])
        ranks = 1 if layout == "threads" else 2
        plan = json.loads(output([program, "plan", *words(options), "--ranks", str(ranks), "--machine", str(machine), "--json"]))
        predicted = plan["seconds_per_step"]
        steps = max(10, min(60, int(SECONDS / predicted["step"])))
        with tempfile.TemporaryDirectory() as folder:
            output([*launcher, str(ranks), program, *words(options), "--test-steps", str(steps), "--run-dir", folder + "/run",
                    "--drop-last", "true"])
            summary = json.loads(Path(folder, "run/summary.json").read_text())
        load = os.getloadavg()[0]
        measured = options["global-batch-size"] / summary["samples_per_s"]
        by_phase = {phase: statistics.mean(rank["seconds"][phase] for rank in summary["ranks"]) / summary["steps"]
                    for phase in ("forward", "backward", "reduce", "optimizer")}
        points.append({"model": model, "layout": layout, "options": options, "predicted": predicted, "measured": measured,
                       "measured_phases": by_phase, "load": load})
        print(f"{number:3d} {model:12s} {layout:8s} {options['precision']} mb {options['micro-batch-size']} zero {options['zero']} "
              f"{options['recompute']:10s} predicted {1e3 * predicted['step']:8.1f} ms, measured {1e3 * measured:8.1f} ms: "
              f"{100 * (predicted['step'] / measured - 1):+6.1f} %  "
              + " ".join(f"{phase[0]} {100 * (predicted[phase] / max(by_phase[phase], 1e-9) - 1):+.0f}" for phase in
                         ("forward", "backward")) + f"  load {load:.1f}", flush=True)
        out.write_text(json.dumps(points, indent=1))
    errors = [point["predicted"]["step"] / point["measured"] - 1 for point in points]
    within = sum(abs(error) <= 0.10 for error in errors)
    print(f"{within} of {len(points)} within 10 %; median error {100 * statistics.median(errors):+.1f} %, "
          f"largest {100 * max(errors, key=abs):+.1f} %")
    for key in ("model", "layout"):
        for value in sorted({point[key] for point in points}):
            some = [error for point, error in zip(points, errors) if point[key] == value]
            print(f"  {value:12s} {len(some):3d} points, median {100 * statistics.median(some):+.1f} %")


main()
