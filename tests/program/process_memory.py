#!/usr/bin/env python3
"""What the process of each rank grows by is what the planner says, within 5 %: tensors, and the figure for libraries; the
heap has no holes that steps leave behind. What fits is decided by that, too. Of data no rank holds more than predicted,
and of workspaces what is predicted where a copy of the state is among them.

    process_memory.py PROGRAM LAUNCHER WORDS...

The launcher's words end with the option that takes the number of ranks.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

BOUND = 0.05
MODEL = ["--task=forecast", "--image-size=128x256", "--patch-size=8", "--embed-dim=256", "--num-heads=8", "--in-channels=8",
         "--out-channels=8", "--depth=6"]
RUNS = [  # ranks and options
    (1, ["--global-batch-size=2"]),
    (1, ["--global-batch-size=6", "--precision=bf16"]),
    (2, ["--dp=2", "--global-batch-size=8", "--recompute=full"]),
    (1, ["--global-batch-size=8", "--io-threads=0", "--generated-valid-samples=32"]),  # more validation than is read ahead
    (2, ["--dp=2", "--global-batch-size=4", "--checkpoint-async", "--checkpoint-every=2"]),
]


def problems_of_limits(program):
    """`plan` with a little more and a little less memory than tensors and libraries take together."""
    def plan(gib):
        done = subprocess.run([program, "plan", *MODEL, *RUNS[0][1], "--data=synthetic", "--dp=1", "--json",
                               f"--memory-gib={gib}"], check=True, capture_output=True, text=True, timeout=60)
        return json.loads(done.stdout)

    fullest = plan("none")["fullest_rank"]
    takes = (fullest["bytes"] + fullest["libraries"]) / 2**30
    return [f"plan: {takes:.3f} GiB {'do not fit' if fits else 'fit'} into {share} of it"
            for share, fits in ((1.01, True), (0.99, False)) if plan(share * takes)["fits"] != fits]


def main():
    program, launcher = sys.argv[1], sys.argv[2:]
    failures = problems_of_limits(program)
    for ranks, options in RUNS:
        with tempfile.TemporaryDirectory() as folder:
            run = Path(folder) / "run"
            copies = "--checkpoint-async" in options
            subprocess.run(launcher + [str(ranks), program, *MODEL, *options, "--data=synthetic", "--steps=3", "--threads=1", "--device=cpu",
                            f"--keep-checkpoints={1 if copies else 'none'}", f"--run-dir={run}"], check=True, stdout=subprocess.DEVNULL, timeout=600)
            for rank in json.loads((run / "summary.json").read_text())["ranks"]:
                memory = rank["memory"]
                growth, predicted = memory["process_peak"] - memory["process_start"], memory["predicted_process"]
                line = f"rank {rank['rank']} of {' '.join(options)}: {growth / 2**20:.1f} MiB, predicted {predicted / 2**20:.1f}"
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
