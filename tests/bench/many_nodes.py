#!/usr/bin/env python3
"""Prints, as Markdown, what `plan --machine` predicts of trainings on 1 to 256 nodes: strong and weak scaling.

    tests/bench/many_nodes.py PROGRAM [MACHINE]     (MACHINE: configs/machines/cirrus_cpu.json)

Ranks and threads of a node are those of the machine file's first population; bf16, tp 4. Strong: a global batch of 6,144, in
micro-batches of at most 16; weak: 4 samples a replica. Efficiency is samples/s a node beside that of the fewest nodes of the column.
"""
import json
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODELS = ["vit-b16", "vit-h14", "weather-d12", "weather-mp"]
NODES = [1, 4, 16, 64, 256]
TENSOR, WEAK, STRONG, MOST = 4, 4, 6144, 16


def planned(program, machine, population, model, nodes, batch):
    """The plan's JSON of `batch` samples a replica."""
    ranks = population["ranks"] * nodes
    words = ["--preset", model, "--data", "synthetic", "--precision", "bf16", "--device", "cpu", "--threads", population["threads"],
             "--ranks", ranks, "--ranks-per-node", population["ranks"], "--tp", TENSOR, "--dp", ranks // TENSOR, "--pp", 1,
             "--global-batch-size", batch * ranks // TENSOR, "--micro-batch-size", min(batch, MOST), "--machine", machine, "--json"]
    done = subprocess.run([program, "plan", *map(str, words)], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{model} on {nodes} nodes: {done.stderr.strip()}")
    return json.loads(done.stdout)


def rows_of(program, machine, mode):
    population = json.loads(pathlib.Path(machine).read_text(encoding="utf-8"))["populations"][0]
    for model in MODELS:
        first = None
        for nodes in NODES:
            replicas = nodes * population["ranks"] // TENSOR
            batch = WEAK if mode == "weak" else STRONG // replicas
            if batch == 0:
                continue
            plan = planned(program, machine, population, model, nodes, batch)
            a_node = plan["samples_per_s"] / nodes
            first = first or a_node
            seconds = plan["seconds_per_step"]
            yield [model, nodes, batch, plan["samples_per_s"], seconds["step"], seconds["reduce"], seconds["optimizer"],
                   100.0 * a_node / first]


def main():
    if len(sys.argv) not in (2, 3) or sys.argv[1] in ("-h", "--help"):
        sys.exit(__doc__)
    machine = sys.argv[2] if len(sys.argv) == 3 else str(ROOT / "configs/machines/cirrus_cpu.json")
    for mode in ("strong", "weak"):
        print(f"{mode}:\n\n| model | nodes | samples a replica | samples/s | step, s | reduce, s | optimizer, s | efficiency, % |")
        print("|---|---|---|---|---|---|---|---|")
        for row in rows_of(sys.argv[1], machine, mode):
            print("| " + " | ".join(f"{value:.4g}" if isinstance(value, float) else str(value) for value in row) + " |")
        print()


if __name__ == "__main__":
    main()
