#!/usr/bin/env python3
"""Trains random models in random layouts and sets what was predicted beside what was counted: each rank's memory by class,
and the traffic of rank 0 by axis, which must be the same.

    plan.py PROGRAM COUNT RANKS LAUNCHER WORDS...

COUNT runs on at most RANKS ranks, and some that read and paint large images.

The launcher's words end with the option that takes the number of ranks. A class of 16 MiB or more must be within 3 % of
the prediction, and data besides less by no more than the batches that are read ahead, as far as readers have come; all together
must be no more than predicted, and the prediction at most 10 % more. A process grows by what was predicted within 5 %: models are drawn
whose smallest rank is predicted to grow by 200 MiB, since what libraries take of a process is known to some 10 MiB.
"""

import json
import random
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
from checked_folder import CheckedFolder  # noqa: E402

LEAST_BYTES = 16 << 20
BOUND = 0.03
SUM_BOUND = 0.10
PROCESS_BOUND, LEAST_PROCESS = 0.05, 200 << 20
SMALL = 4 << 20
READ_AHEAD = 4  # batches that need not be there when most is held: of training and of validation
STEPS = 3
EVERY = 10  # run of four ranks and more that cuts the data axis


def draw(rng, most_ranks, cuts_data):
    """Options of a run with classes of memory worth measuring, and its number of ranks. `cuts_data`: the optimizer state is split
    over parts of two replicas."""
    degrees = range(1, most_ranks + 1)
    dp, tp, pp = rng.choice([(a, b, c) for a in degrees for b in degrees for c in degrees if a * b * c <= most_ranks])
    if cuts_data:
        dp, tp, pp = 4, 1, 1
    heads = rng.choice([4, 6, 8])
    dim = heads * rng.choice([32, 48, 64, 96, 128])
    precision = rng.choice(["fp32", "fp32", "fp64", "bf16", "bf16", "fp16"])
    micro_batch = rng.choice([1, 2, 3, 4])
    options = {
        "dp": dp, "tp": tp, "pp": pp,
        "embed-dim": dim, "num-heads": heads, "depth": rng.choice([3, 4, 5, 7]),
        "mlp-hidden": dim * rng.choice([2, 4]) + rng.choice([0, 5]),
        "micro-batch-size": micro_batch,
        "global-batch-size": dp * micro_batch * rng.choice([1, 2, 4]) + rng.choice([0, 0, 1]),
        "precision": precision,
        "optimizer": rng.choice(["adamw", "adamw", "adam", "sgd", "lamb", "lars"]),
        "zero": rng.choice([0, 1]) or int(cuts_data), "zero-shard-size": 2 if cuts_data else "auto",
        "recompute": rng.choice(["none", "none", "selective", "full"]),
        "schedule": rng.choice(["1f1b", "gpipe"]),
        "seed": rng.randrange(1000),
        "valid": rng.choice([0, 32]),
        "tp-overlap": rng.choice(["false", "false", "true"]),
    }
    if options["recompute"] == "full":
        options["tp-overlap"] = "false"  # refused
    if precision in ("bf16", "fp16"):
        options["grad-dtype"] = rng.choice(["master", "half"])
        options["reduce-dtype"] = rng.choice(["grad", "half"])
    if rng.random() < 0.5:
        size = rng.choice(["64x128", "96x96"])
        options.update({"task": "forecast", "image-size": size, "patch-size": rng.choice([4, 8]), "in-channels": 4,
                        "out-channels": 4})
    else:
        options.update({"task": "classify", "image-size": rng.choice([96, 112]), "patch-size": 8, "num-classes": 30})
    if rng.random() < 0.4:
        options["dropout"] = 0.1
    if rng.random() < 0.25:
        options["attention-dropout"] = 0.1
    return options, dp * tp * pp


def draw_large(rng, most_ranks, cuts_data, program):
    """As `draw`, of the models whose every rank is large: words of the command line, options, and ranks."""
    while True:
        options, ranks = draw(rng, most_ranks, cuts_data)
        words = [f"--{name}={value}" for name, value in options.items() if name != "valid"]
        words += [f"--steps={STEPS}", "--generated-samples=128", f"--generated-valid-samples={options['valid']}",
                  "--keep-checkpoints=none", "--threads=1", "--device=cpu"]
        plan = json.loads(subprocess.run([program, "plan", f"--ranks={ranks}", "--json", *words], capture_output=True, check=True,
                                         text=True).stdout)
        if min(stage["bytes"] + stage["libraries"] for stage in plan["stages"]) >= LEAST_PROCESS:
            return words, options, ranks


def batch_bytes(options):
    if options["task"] == "classify":
        return options["micro-batch-size"] * 3 * 4 * int(options["image-size"]) ** 2
    height, width = map(int, options["image-size"].split("x"))
    return options["micro-batch-size"] * 2 * options["in-channels"] * 4 * height * width


def images(program):
    """What is said of the data of trainings whose batches are large beside all else."""
    failures = []
    with CheckedFolder() as folder:
        subprocess.run([program, "data", "generate", "images", "--out", f"{folder}/images", "--train-images", "56", "--valid-images",
                        "48", "--size", "200"], check=True, capture_output=True)
        files = (f"--train-data={folder}/images/train.h5", f"--valid-data={folder}/images/valid.h5")
        painted = ("--generated-samples=56", "--generated-valid-samples=48")
        for number, words in enumerate((files, painted, (*files, "--mixup=0.2"), (*files, "--precision=bf16"))):
            run = Path(folder) / f"run{number}"
            # Nothing is read ahead, and an epoch ends with a smaller batch: each number is certain.
            subprocess.run([program, "--task=classify", "--image-size=192", *words, "--patch-size=32", "--embed-dim=16", "--num-heads=2",
                            "--depth=1", "--global-batch-size=24", "--micro-batch-size=24", "--steps=4", "--threads=1", "--io-threads=0",
                            "--device=cpu", "--keep-checkpoints=none", f"--run-dir={run}"], check=True, capture_output=True)
            memory = json.loads((run / "summary.json").read_text())["ranks"][0]["memory"]
            held, predicted = memory["peak"]["data"], memory["predicted"]["data"]
            if held < LEAST_BYTES or abs(predicted - held) > BOUND * held:
                failures.append(f"images, {words}: data {held / 2**20:.2f} MiB, predicted {predicted / 2**20:.2f}")
    return failures


def main():
    program, count, most_ranks, launcher = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:]
    rng = random.Random(20261124)
    checked, traffic, growths, failures = 0, 0, [], images(program)
    for number in range(count):
        words, options, ranks = draw_large(rng, most_ranks, most_ranks >= 4 and number % EVERY == 0, program)
        with CheckedFolder() as folder:
            run = Path(folder) / "run"
            command = launcher + [str(ranks)]
            done = subprocess.run(command + [program, *words, f"--run-dir={run}"], capture_output=True, text=True, timeout=600)
            if done.returncode != 0:
                failures.append(f"run {number} ended with {done.returncode}: {' '.join(words)}\n{done.stderr}")
                continue
            summary = json.loads((run / "summary.json").read_text())
        # Validation moves activations, too, and the norms of LAMB and LARS a few numbers.
        for axis in summary["communication"] if options["valid"] == 0 and options["optimizer"] not in ("lamb", "lars") else []:
            if "predicted_per_step" in axis:
                traffic += 1
                keys = axis["predicted_per_step"].keys()
                counted = {key: sum(of[key] for of in axis["rank_0"].values()) for key in keys}
                wanted = {key: STEPS * axis["predicted_per_step"][key] for key in keys}
                if counted != wanted:
                    failures.append(f"run {number}, axis {axis['axis']}: {counted}, predicted {wanted}: {' '.join(words)}")
        slack = READ_AHEAD * batch_bytes(options)
        for rank in summary["ranks"]:
            memory = rank["memory"]
            for name, bytes_held in memory["peak"].items():
                predicted = memory["predicted"][name]
                if max(bytes_held, predicted) < LEAST_BYTES:
                    continue
                checked += 1
                if not -BOUND * bytes_held <= predicted - bytes_held <= BOUND * bytes_held + (slack if name == "data" else 0):
                    failures.append(f"run {number}, rank {rank['rank']}: {name} {bytes_held / 2**20:.2f} MiB, predicted "
                                    f"{predicted / 2**20:.2f}: {' '.join(words)}")
            growth, of_plan = memory["process_peak"] - memory["process_start"], memory["predicted_process"]
            growths.append(growth / of_plan)
            if abs(growth - of_plan) > PROCESS_BOUND * of_plan:
                failures.append(f"run {number}, rank {rank['rank']}: the process grew by {growth / 2**20:.2f} MiB, predicted "
                                f"{of_plan / 2**20:.2f}: {' '.join(words)}")
            total, held = memory["predicted_total"], memory["total_peak"]
            if not held <= 1.001 * total + SMALL or total > (1 + SUM_BOUND) * held + slack + SMALL:
                failures.append(f"run {number}, rank {rank['rank']}: {held / 2**20:.2f} MiB in all, predicted "
                                f"{total / 2**20:.2f}: {memory['peak']} {memory['predicted']} {' '.join(words)}")
    print(f"{count} runs, {checked} classes of {LEAST_BYTES >> 20} MiB or more, traffic of {traffic} axes, {len(failures)} failures")
    near = sum(abs(growth - 1) <= PROCESS_BOUND for growth in growths)
    print(f"processes of {len(growths)} ranks grew by {min(growths):.3f} to {max(growths):.3f} times what was predicted, {near} within "
          f"{PROCESS_BOUND:.0%}")
    for failure in failures:
        print("FAILED:", failure)
    return 1 if failures or checked < count else 0


if __name__ == "__main__":
    sys.exit(main())
