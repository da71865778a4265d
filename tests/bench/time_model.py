#!/usr/bin/env python3
"""Predicts the time of a step of random trainings and sets the measured one beside it.

    time_model.py measure PROGRAM BENCH_CORE_SPEED OUT.json COUNT CROWDED -- LAUNCHER WORDS...
    time_model.py judge PROGRAM OUT.json [PLOT.svg]

`measure` calibrates the machine, with one rank of two threads and with two ranks (into machine.json beside OUT.json),
draws COUNT trainings that fill its two cores and CROWDED ones of 4, 8 and 16 ranks by seed, none of whose sizes is
calibrated on, and measures what the median of the steps of `--test-steps` is. A virtual machine's cores change their
speed by a third, for seconds or minutes, whatever runs in them; so a look at each goes on beside (bench_core_speed),
which knows nothing of what is measured, and a training counts if their mean speed and that of the slower one, which the
other waits for, were, within STEADY, what they had been in the calibration. Of those that have no such run another is
made, when all have had their turn, up to PASSES times. The launcher's words end with the option that takes the number
of ranks; an OUT.json that is there is gone on with.
`judge` sets a training's run that counts (of one that has none the nearest) beside what `plan --machine` says, and
prints each, the errors by kind, and the share within 10 % (25 % of the crowded ones).
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
CROWDED = [(4, 1, 1), (2, 2, 1), (2, 1, 2), (1, 2, 2), (1, 4, 1), (1, 1, 4), (2, 2, 2), (4, 2, 1), (8, 1, 1), (4, 2, 2)]
CORES = 2
PHASES = ("forward", "backward", "reduce", "optimizer")
SECONDS = 4.0  # of steps, about, a run
STEADY = 0.08
PASSES = 6
BOUNDS = {False: 0.10, True: 0.25}  # of the errors, by whether ranks share cores


def options_of(rng, degrees, threads, micro_batch, micro_batches):
    dp, tp, pp = degrees
    model = rng.choice(list(MODELS))
    return {"model": model, "ranks": dp * tp * pp,
            "options": {**MODELS[model], "dp": dp, "tp": tp, "pp": pp, "precision": rng.choice(["fp32", "bf16"]),
                        "micro-batch-size": micro_batch, "global-batch-size": dp * micro_batch * micro_batches,
                        "zero": rng.choice([0, 1]), "recompute": rng.choice(["none", "selective", "full"]),
                        "data": "synthetic", "threads": threads}}


def draw(rng):
    layout, degrees, threads = rng.choice([("threads", (1, 1, 1), 2), ("dp", (2, 1, 1), 1), ("tp", (1, 2, 1), 1),
                                           ("pp", (1, 1, 2), 1)])
    micro_batches = rng.choice([2, 4]) if layout == "pp" else rng.choice([1, 2])
    return {"layout": layout, **options_of(rng, degrees, threads, rng.choice([1, 2, 8]), micro_batches)}


def draw_crowded(rng):
    degrees = rng.choice(CROWDED)
    micro_batches = rng.choice([2, 4]) if degrees[2] > 1 else rng.choice([1, 2])
    return {"layout": "crowded", **options_of(rng, degrees, 1, rng.choice([1, 2]), micro_batches)}


def is_crowded(point):
    return point["ranks"] * point["options"]["threads"] > CORES


def words(options):
    return [word for name, value in options.items() for word in (f"--{name}", str(value))]


def output(command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}\nended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def run(program, launcher, point, steps):
    """The summary of so many steps, and what a step took."""
    options = point["options"]
    os.environ["OMP_NUM_THREADS"] = str(options["threads"])
    # As launch/environment has it: who waits gives the core to one that works.
    os.environ["OMPI_MCA_mpi_yield_when_idle"] = str(int(is_crowded(point)))
    with tempfile.TemporaryDirectory() as folder:
        output([*launcher, str(point["ranks"]), program, *words(options), "--test-steps", str(steps), "--run-dir",
                folder + "/run", "--drop-last", "true", "--generated-valid-samples", "0"])
        summary = json.loads(Path(folder, "run/summary.json").read_text())
    return summary, options["global-batch-size"] / summary["samples_per_s"]


def machine_beside(out):
    return out.parent / "machine.json"


def predicted(program, machine, point):
    return json.loads(output([program, "plan", *words(point["options"]), "--ranks", str(point["ranks"]), "--machine",
                              str(machine), "--json"]))["seconds_per_step"]


class CoreSpeeds:
    """What speed the cores had since the last question, in GFLOP/s: their mean, and that of the slower at each moment."""

    def __init__(self, program):
        self.looks = [subprocess.Popen(["taskset", "-c", str(core), program], stdin=subprocess.PIPE,
                                       stdout=subprocess.PIPE, text=True) for core in sorted(os.sched_getaffinity(0))]

    def since_last(self):
        for look in self.looks:
            print(file=look.stdin, flush=True)
        speeds = list(zip(*([float(word) for word in look.stdout.readline().split()] for look in self.looks)))
        return {"mean": statistics.mean(map(statistics.mean, speeds)), "slower": statistics.mean(map(min, speeds))}


def nearest(point):
    """The run with which the cores were most as while calibrated."""
    return min(point["runs"], key=lambda one: one["cores_off"])


def counts(point):
    return bool(point["runs"]) and nearest(point)["cores_off"] <= STEADY


def calibrate(program, launcher, machine):
    for ranks, threads in ((1, 2), (2, 1)):
        os.environ["OMP_NUM_THREADS"] = str(threads)
        print(output([*launcher, str(ranks), program, "calibrate", "--threads", str(threads), "--out", str(machine)]),
              end="", flush=True)


def measure(program, core_speed, out, count, crowded, launcher):
    if len(os.sched_getaffinity(0)) != CORES:
        sys.exit(f"it is for machines of {CORES} cores")
    speeds, machine = CoreSpeeds(core_speed), machine_beside(out)
    if out.exists():
        found = json.loads(out.read_text())
    else:
        rng = random.Random(20261124)
        machine.unlink(missing_ok=True)
        speeds.since_last()
        calibrate(program, launcher, machine)
        found = {"gflops": speeds.since_last(),
                 "points": [draw(rng) for _ in range(count)] + [draw_crowded(rng) for _ in range(crowded)]}
    for of_pass in range(PASSES):
        for number, point in enumerate(found["points"]):
            runs = point.setdefault("runs", [])
            if len(runs) > of_pass or counts(point):
                continue
            step = predicted(program, machine, point)["step"]
            speeds.since_last()
            summary, measured = run(program, launcher, point, max(4, min(60, int(SECONDS / step))))
            off = max(abs(speed / found["gflops"][key] - 1) for key, speed in speeds.since_last().items())
            phases = {phase: statistics.mean(rank["seconds"][phase] for rank in summary["ranks"]) / summary["steps"]
                      for phase in PHASES}
            runs.append({"measured": measured, "phases": phases, "cores_off": off})
            print(f"{of_pass} {number:3d} {point['layout']:8s} {point['model']:12s} {1e3 * measured:8.1f} ms, "
                  f"predicted {1e3 * step:8.1f}, cores {100 * off:.0f} % off", flush=True)
            out.write_text(json.dumps(found, indent=1))


def judge(program, out, plot):
    points = [point for point in json.loads(out.read_text())["points"] if point.get("runs")]
    for number, point in enumerate(points):
        options = point["options"]
        one, plan = nearest(point), predicted(program, machine_beside(out), point)
        point["predicted"], point["measured"] = plan["step"], one["measured"]
        point["error"] = point["predicted"] / point["measured"] - 1
        print(f"{number:3d} {point['model']:12s} {options['dp']} x {options['tp']} x {options['pp']} "
              f"{options['precision']} mb {options['micro-batch-size']} zero {options['zero']} "
              f"{options['recompute']:10s} predicted {1e3 * point['predicted']:8.1f} ms, measured "
              f"{1e3 * point['measured']:8.1f} ms, cores {100 * one['cores_off']:2.0f} % off, error "
              f"{100 * point['error']:+6.1f} %  "
              + " ".join(f"{phase[0]} {1e3 * plan[phase]:.1f}/{1e3 * one['phases'][phase]:.1f}" for phase in PHASES))
    print(f"{sum(counts(point) for point in points)} of {len(points)} while cores were as calibrated")
    for crowded, bound in BOUNDS.items():
        errors = [point["error"] for point in points if is_crowded(point) == crowded]
        if errors:
            within = sum(abs(error) <= bound for error in errors)
            print(f"{'ranks that share cores' if crowded else 'a core a thread'}: {within} of {len(errors)} within "
                  f"{100 * bound:.0f} %; median error {100 * statistics.median(errors):+.1f} %, largest "
                  f"{100 * max(errors, key=abs):+.1f} %")
    kinds = [(point[key], point["error"]) for point in points for key in ("model", "layout")]
    kinds += [(str(point["options"][key]), point["error"]) for point in points for key in ("precision", "recompute")]
    for kind in sorted({kind for kind, _ in kinds}):
        errors = [error for of, error in kinds if of == kind]
        print(f"  {kind:12s} {len(errors):3d} points, median {100 * statistics.median(errors):+.1f} %")
    if plot:
        scatter(points, plot)


def scatter(points, path):
    import matplotlib
    matplotlib.use("svg")
    import matplotlib.pyplot as plt
    figure, axes = plt.subplots(figsize=(6, 6))
    for crowded, marker, label in ((False, "o", "a core a thread"), (True, "^", "4 to 16 ranks on 2 cores")):
        some = [point for point in points if is_crowded(point) == crowded]
        axes.plot([1e3 * point["measured"] for point in some], [1e3 * point["predicted"] for point in some], marker,
                  color="black", fillstyle="none", markersize=5, label=label)
    ends = [1e3 * choose(point["measured"] for point in points) for choose in (min, max)]
    ends = [0.7 * ends[0], 1.4 * ends[1]]
    axes.plot(ends, ends, "-", color="0.4", linewidth=1, label="equal")
    for style, bound in (("--", BOUNDS[False]), (":", BOUNDS[True])):
        for sign in (-1, 1):
            axes.plot(ends, [(1 + sign * bound) * end for end in ends], style, color="0.4", linewidth=1,
                      label=f"±{100 * bound:.0f} %" if sign > 0 else None)
    axes.set(xscale="log", yscale="log", xlim=ends, ylim=ends, xlabel="measured, ms a step",
             ylabel="predicted, ms a step")
    axes.legend()
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


def main():
    match sys.argv[1:]:
        case ["measure", program, core_speed, out, count, crowded, "--", *launcher]:
            measure(program, core_speed, Path(out), int(count), int(crowded), launcher)
        case ["judge", program, out, *plot] if len(plot) <= 1:
            judge(program, Path(out), plot[0] if plot else None)
        case _:
            sys.exit(__doc__)


main()
