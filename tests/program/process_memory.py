#!/usr/bin/env python3
"""What the process of each rank grows by is what the planner says, within 5 %, of ranks that hold 50 MiB and of those that
hold hundreds: tensors, and the figure for libraries; the heap has no holes that steps leave behind. What fits is decided
by that, too. Of data no rank holds more than predicted, and of workspaces what is predicted where a copy of the state is
among them.

    process_memory.py PROGRAM LAUNCHER WORDS...

The launcher's words end with the option that takes the number of ranks.
"""

import json
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
from checked_folder import CheckedFolder  # noqa: E402

BOUND = 0.05


def model(task, image, patch, width, depth, *more):
    return [f"--task={task}", f"--image-size={image}", f"--patch-size={patch}", f"--embed-dim={width}", f"--depth={depth}", *more]


FIELDS = ["--num-heads=8", "--in-channels=8", "--out-channels=8"]
FORECAST = model("forecast", "128x256", 8, 256, 6, *FIELDS)
SMALL = model("forecast", "64x128", 8, 128, 4, *FIELDS)
IMAGES = model("classify", 32, 4, 192, 4, "--num-heads=4", "--num-classes=10")
RUNS = [  # ranks, model, and other options
    (1, FORECAST, ["--global-batch-size=2"]),
    (1, FORECAST, ["--global-batch-size=6", "--precision=bf16"]),
    (2, FORECAST, ["--dp=2", "--global-batch-size=8", "--recompute=full"]),
    # More validation than is read ahead.
    (1, FORECAST, ["--global-batch-size=8", "--io-threads=0", "--generated-valid-samples=32"]),
    (2, FORECAST, ["--dp=2", "--global-batch-size=4", "--checkpoint-async", "--checkpoint-every=2"]),
    (1, SMALL, ["--global-batch-size=4"]),
    (2, SMALL, ["--dp=2", "--global-batch-size=8", "--precision=bf16"]),
    (2, IMAGES, ["--dp=2", "--global-batch-size=16"]),
]


def problems_of_limits(program):
    """`plan` with a little more and a little less memory than tensors and libraries take together."""
    def plan(gib):
        done = subprocess.run([program, "plan", *RUNS[0][1], *RUNS[0][2], "--data=synthetic", "--dp=1", "--json",
                               f"--memory-gib={gib}"], check=True, capture_output=True, text=True, timeout=60)
        return json.loads(done.stdout)

    fullest = plan("none")["fullest_rank"]
    takes = (fullest["bytes"] + fullest["libraries"]) / 2**30
    return [f"plan: {takes:.3f} GiB {'do not fit' if fits else 'fit'} into {share} of it"
            for share, fits in ((1.01, True), (0.99, False)) if plan(share * takes)["fits"] != fits]


def main():
    program, launcher = sys.argv[1], sys.argv[2:]
    failures = problems_of_limits(program)
    for ranks, of_model, options in RUNS:
        with CheckedFolder() as folder:
            run = Path(folder) / "run"
            copies = "--checkpoint-async" in options
            subprocess.run(launcher + [str(ranks), program, *of_model, *options, "--data=synthetic", "--steps=3", "--threads=1", "--device=cpu",
                            f"--keep-checkpoints={1 if copies else 'none'}", f"--run-dir={run}"], check=True, stdout=subprocess.DEVNULL, timeout=600)
            for rank in json.loads((run / "summary.json").read_text())["ranks"]:
                memory = rank["memory"]
                growth, predicted = memory["process_peak"] - memory["process_start"], memory["predicted_process"]
                line = f"rank {rank['rank']} of {' '.join(of_model[1:5] + options)}: {growth / 2**20:.1f} MiB, predicted {predicted / 2**20:.1f}"
                print(line)
                if abs(growth - predicted) > BOUND * predicted:
                    failures.append(line)
                data, most = memory["peak"]["data"], memory["predicted"]["data"]
                if data > most:
                    failures.append(f"{line}: {data / 2**20:.1f} MiB of data, predicted at most {most / 2**20:.1f}")
                held, expected = memory["peak"]["workspaces"], memory["predicted"]["workspaces"]
                if copies and abs(held - expected) > 0.03 * expected:
                    failures.append(f"{line}: {held / 2**20:.1f} MiB of workspaces, predicted {expected / 2**20:.1f}")
    for failure in failures:
        print("FAILED:", failure)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
