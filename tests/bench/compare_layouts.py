#!/usr/bin/env python3
"""Throughput of layouts on one machine against one process with as many threads, measured in turn (needs no packages).

    tests/bench/compare_layouts.py --program build/release/bin/vit_hybrid --model vit-b16 --batch 8
    tests/bench/compare_layouts.py --program build/release/bin/vit_hybrid --model weather-short --batch 2

One process with `--cores` threads, then dp, tp and pp over `--cores` ranks of one thread each, round after round. Prints for
each: samples/s, the ratio to one process, the share of time that rank 0 stood in communicators, the bytes a step that it
moved by axis, and for the pipeline the bubble (p - 1)/(M + p - 1) and what remains unexplained after it.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import tempfile


def run(arguments, ranks, threads, words):
    """The run's summary and its steps after the first, which warms up."""
    environment = dict(os.environ, OMP_NUM_THREADS=str(threads), MKL_NUM_THREADS=str(threads))
    environment.setdefault("OMPI_ALLOW_RUN_AS_ROOT", "1")
    environment.setdefault("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
    with tempfile.TemporaryDirectory() as folder:
        run_folder = pathlib.Path(folder) / "run"
        launcher = ["mpirun", "-q", "--bind-to", "none", "-n", str(ranks)] if ranks > 1 else []
        command = launcher + [arguments.program, "--preset", arguments.model, "--data", "synthetic", "--steps",
                              str(arguments.steps + 1), "--global-batch-size", str(arguments.batch),
                              "--generated-samples", str(arguments.batch * (arguments.steps + 1)),
                              "--generated-valid-samples", "0", "--precision", arguments.precision,
                              "--device", "cpu", "--run-dir", str(run_folder)] + words
        subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)
        lines = [json.loads(line) for line in (run_folder / "metrics.jsonl").read_text().splitlines()]
        steps = [line["seconds"] for line in lines if line["kind"] == "step"][1:]
        return json.loads((run_folder / "summary.json").read_text()), steps


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default="build/release/bin/vit_hybrid")
    parser.add_argument("--model", default="vit-b16")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--cores", type=int, default=os.cpu_count())
    parser.add_argument("--precision", choices=["fp32", "tf32", "bf16", "fp16", "fp64"], default="fp32")
    parser.add_argument("--micro-batches", type=int, default=8, help="of the pipeline")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=2)
    arguments = parser.parse_args()
    arguments.program = str(pathlib.Path(arguments.program).resolve())

    n = arguments.cores
    per_replica = max(1, arguments.batch // n)
    micro_batch = max(1, arguments.batch // arguments.micro_batches)
    micro_batches = -(-arguments.batch // micro_batch)
    layouts = {
        "one process": (1, n, ["--micro-batch-size", str(arguments.batch)]),
        f"dp {n}": (n, 1, ["--dp", str(n), "--micro-batch-size", str(per_replica)]),
        f"tp {n}": (n, 1, ["--tp", str(n), "--micro-batch-size", str(arguments.batch)]),
        f"pp {n}": (n, 1, ["--pp", str(n), "--micro-batch-size", str(micro_batch)]),
    }
    seconds = {name: [] for name in layouts}
    communication = {name: [] for name in layouts}
    summaries = {}
    for _ in range(arguments.rounds):
        for name, (ranks, threads, words) in layouts.items():
            summaries[name], steps = run(arguments, ranks, threads, words)
            seconds[name] += [step["step"] for step in steps]
            communication[name] += [step["communication"] for step in steps]

    reference = statistics.median(seconds["one process"])
    print(f"{arguments.model}, {arguments.precision}, batch {arguments.batch}, {n} cores, "
          f"median of {len(seconds['one process'])} steps")
    print(f"{'layout':<12} {'s/step':>8} {'samples/s':>10} {'ratio':>6} {'waiting':>8}  MB a step on rank 0")
    for name in layouts:
        step = statistics.median(seconds[name])
        moved = ", ".join(
            f"{axis['axis']} {sum(op['bytes'] for op in axis['rank_0'].values()) / 1e6 / (arguments.steps + 1):.1f}"
            for axis in summaries[name]["communication"] if axis["ranks"] > 1 and axis["axis"] != "world")
        waiting = statistics.median(communication[name]) / step
        print(f"{name:<12} {step:8.3f} {arguments.batch / step:10.3f} {reference / step:6.3f} {waiting:8.1%}  {moved}")
    bubble = (n - 1) / (micro_batches + n - 1)
    ratio = reference / statistics.median(seconds[f"pp {n}"])
    print(f"pipeline bubble with {micro_batches} micro-batches: {bubble:.1%}; "
          f"unexplained: {100 * (1 - bubble - ratio):.1f} points")


if __name__ == "__main__":
    main()
