#!/usr/bin/env python3
"""Trains the same ViT in eager PyTorch and prints seconds a step and samples/s (optional; needs the torch package).

    tests/bench/compare_pytorch.py --model weather-short --batch 1 --threads 2 --steps 3
    tests/bench/compare_pytorch.py --model vit-b16 --batch 8 --threads 2 --steps 3 --program build/release/bin/vit_hybrid

With --program it also runs vit_hybrid on synthetic data with as many threads, one run after the other on the same
machine, `--rounds` times in turn, and prints the ratio of the medians. Same model, batch, optimizer (Adam) and precision
(float32); nothing is compiled or fused beyond what each program does by default.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

MODELS = {
    # name: (height, width, patch, in channels, dim, depth, heads, task)
    "weather-short": (360, 720, 8, 20, 384, 6, 8, "forecast"),
    "weather-d12": (360, 720, 8, 20, 384, 12, 8, "forecast"),
    "vit-s16": (224, 224, 16, 3, 384, 12, 6, "classify"),
    "vit-b16": (224, 224, 16, 3, 768, 12, 12, "classify"),
    "vit-l16": (224, 224, 16, 3, 1024, 24, 16, "classify"),
}


def build(torch, name):
    nn, functional = torch.nn, torch.nn.functional
    height, width, patch, channels, dim, depth, heads, task = MODELS[name]
    rows, columns = height // patch, width // patch

    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.qkv = nn.Linear(dim, 3 * dim)
            self.proj = nn.Linear(dim, dim)

        def forward(self, x):
            b, n, _ = x.shape
            q, k, v = self.qkv(x).reshape(b, n, 3, heads, dim // heads).permute(2, 0, 3, 1, 4)
            y = functional.scaled_dot_product_attention(q, k, v)
            return self.proj(y.transpose(1, 2).reshape(b, n, dim))

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(dim, eps=1e-6), nn.LayerNorm(dim, eps=1e-6)
            self.attn = Attention()
            self.fc1, self.fc2 = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)

        def forward(self, x):
            x = x + self.attn(self.norm1(x))
            return x + self.fc2(functional.gelu(self.fc1(self.norm2(x))))

    class ViT(nn.Module):
        def __init__(self):
            super().__init__()
            self.patch = nn.Conv2d(channels, dim, patch, patch)
            tokens = rows * columns + (task == "classify")
            self.positions = nn.Parameter(0.02 * torch.randn(1, tokens, dim))
            self.token = nn.Parameter(torch.zeros(1, 1, dim)) if task == "classify" else None
            self.blocks = nn.Sequential(*[Block() for _ in range(depth)])
            self.norm = nn.LayerNorm(dim, eps=1e-6)
            out = 1000 if task == "classify" else channels * patch * patch
            self.head = nn.Linear(dim, out, bias=task == "classify")

        def forward(self, x):
            b = x.shape[0]
            x = self.patch(x).flatten(2).transpose(1, 2)
            if self.token is not None:
                x = torch.cat([self.token.expand(b, -1, -1), x], 1)
            x = self.norm(self.blocks(x + self.positions))
            if task == "classify":
                return self.head(x[:, 0])
            x = self.head(x).reshape(b, rows, columns, patch, patch, channels)
            return x.permute(0, 5, 1, 3, 2, 4).reshape(b, channels, height, width)

    return ViT()


def eager_seconds(arguments):
    """Seconds of each step of the eager model, after one step that warms up."""
    import torch

    torch.set_num_threads(arguments.threads)
    torch.manual_seed(0)
    height, width, _, channels, _, _, _, task = MODELS[arguments.model]
    model = build(torch, arguments.model)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, betas=(0.9, 0.95))
    x = torch.randn(arguments.batch, channels, height, width)
    y = torch.randn(arguments.batch, channels, height, width) if task == "forecast" else torch.arange(arguments.batch)
    seconds = []
    for _ in range(arguments.steps + 1):
        start = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        out = model(x)
        if task == "forecast":
            loss = ((out - y).flatten(1).norm(dim=1) / y.flatten(1).norm(dim=1)).mean()
        else:
            loss = torch.nn.functional.cross_entropy(out, y, label_smoothing=0.1)
        loss.backward()
        optimizer.step()
        loss.item()
        seconds.append(time.perf_counter() - start)
    return seconds[1:]


def program_seconds(arguments):
    """Seconds of each step of vit_hybrid on synthetic data, from its metrics.jsonl."""
    with tempfile.TemporaryDirectory() as folder:
        run = pathlib.Path(folder) / "run"
        command = [arguments.program, "--preset", arguments.model, "--data", "synthetic", "--steps",
                   str(arguments.steps + 1), "--global-batch-size", str(arguments.batch), "--micro-batch-size",
                   str(arguments.batch), "--run-dir", str(run), "--optimizer", "adam", "--generated-valid-samples", "0"]
        environment = dict(os.environ, OMP_NUM_THREADS=str(arguments.threads))
        subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)
        lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        steps = [line for line in lines if line["kind"] == "step"]
        return [step["seconds"]["step"] for step in steps][1:]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=sorted(MODELS), default="weather-short")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--program", help="path of vit_hybrid, to be measured in turn with PyTorch")
    arguments = parser.parse_args()
    eager, ours = [], []
    for _ in range(arguments.rounds):
        eager += eager_seconds(arguments)
        if arguments.program:
            ours += program_seconds(arguments)
    report = {"model": arguments.model, "batch": arguments.batch, "threads": arguments.threads,
              "eager_seconds": statistics.median(eager)}
    report["eager_samples_per_s"] = arguments.batch / report["eager_seconds"]
    if ours:
        report["vit_hybrid_seconds"] = statistics.median(ours)
        report["vit_hybrid_samples_per_s"] = arguments.batch / report["vit_hybrid_seconds"]
        report["ratio"] = report["eager_seconds"] / report["vit_hybrid_seconds"]
    json.dump(report, sys.stdout, indent=2)
    print()


if __name__ == "__main__":
    main()
