#!/usr/bin/env python3
"""Memory and time of a training step with --recompute none, selective and full, measured in turn (needs no packages).

    tests/bench/compare_recompute.py --program build/release/bin/vit_hybrid --model vit-b16 --batch 8
    tests/bench/compare_recompute.py --program build/release/bin/vit_hybrid --model weather-short --batch 1 --precision bf16
    tests/bench/compare_recompute.py --program build/release/bin/vit_hybrid --model vit-b16 --batch 8 --ranks 2 -- --tp 2

Words after -- are options of vit_hybrid. Prints for each, of the rank with most: the peak of the activations that the memory
tracker counted, the peak of all tensors, and of the process (on a GPU: of the device); and the median of the seconds of a
step over all rounds. The losses of all three must be the same.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

MODES = ["none", "selective", "full"]


def run(arguments, mode):
    """The memory of the ranks, the seconds of the steps after the first, and the losses."""
    environment = dict(os.environ, OMP_NUM_THREADS=str(arguments.threads), MKL_NUM_THREADS=str(arguments.threads))
    environment.setdefault("OMPI_ALLOW_RUN_AS_ROOT", "1")
    environment.setdefault("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
    with tempfile.TemporaryDirectory() as folder:
        run_folder = pathlib.Path(folder) / "run"
        launcher = ["mpirun", "-q", "--bind-to", "none", "-n", str(arguments.ranks)] if arguments.ranks > 1 else []
        command = launcher + [arguments.program, "--preset", arguments.model, "--data", "synthetic", "--recompute", mode,
                              "--precision", arguments.precision, "--steps", str(arguments.steps + 1),
                              "--global-batch-size", str(arguments.batch), "--micro-batch-size", str(arguments.batch),
                              "--generated-samples", str(arguments.batch * (arguments.steps + 1)),
                              "--generated-valid-samples", "0", "--keep-checkpoints", "none", "--run-dir",
                              str(run_folder)] + arguments.words
        subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)
        steps = [json.loads(line) for line in (run_folder / "metrics.jsonl").read_text().splitlines()]
        steps = [step for step in steps if step["kind"] == "step"]
        ranks = json.loads((run_folder / "summary.json").read_text())["ranks"]
        return [rank["memory"] for rank in ranks], [step["seconds"]["step"] for step in steps[1:]], [
            step["loss"] for step in steps]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default="build/release/bin/vit_hybrid")
    parser.add_argument("--model", default="vit-b16")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--precision", default="fp32")
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("words", nargs="*", help="options of vit_hybrid")
    arguments = parser.parse_args()
    arguments.program = str(pathlib.Path(arguments.program).resolve())

    memory, losses = {}, {}
    seconds = {mode: [] for mode in MODES}
    for _ in range(arguments.rounds):
        for mode in MODES:
            memory[mode], steps, losses[mode] = run(arguments, mode)
            seconds[mode] += steps
    if any(losses[mode] != losses["none"] for mode in MODES):
        sys.exit(f"the losses differ: {losses}")

    print(f"{arguments.model}, batch {arguments.batch}, {arguments.precision}, {arguments.ranks} x {arguments.threads} "
          f"threads, median of {len(seconds['none'])} steps; the same losses")
    print(f"{'recompute':<10} {'activations':>12} {'ratio':>6} {'all tensors':>12} {'allocator':>10} {'s/step':>8} "
          f"{'ratio':>6}")

    def most(mode, value):
        return max(value(rank) for rank in memory[mode]) / 2**20

    for mode in MODES:
        activations = most(mode, lambda rank: rank["peak"]["activations"])
        total = most(mode, lambda rank: rank["total_peak"])
        allocator = most(mode, lambda rank: rank["allocator_peak"])
        step = statistics.median(seconds[mode])
        ratio = activations / most("none", lambda rank: rank["peak"]["activations"])
        print(f"{mode:<10} {activations:8.1f} MiB {ratio:6.3f} {total:8.1f} MiB {allocator:6.0f} MiB {step:8.3f} "
              f"{step / statistics.median(seconds['none']):6.3f}")


if __name__ == "__main__":
    main()
