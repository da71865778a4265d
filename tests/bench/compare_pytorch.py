#!/usr/bin/env python3
"""Trains the same ViT with PyTorch and with vit_hybrid, in turn, and prints the ratios (needs the torch package).

    tests/bench/compare_pytorch.py --program build/release/bin/vit_hybrid --model weather-short --batch 1 --threads 2
    tests/bench/compare_pytorch.py --program build/release/bin/vit_hybrid --model vit-b16 --batch 8 --precision bf16 \\
        --compile
    tests/bench/compare_pytorch.py --program build/release/bin/cuda/vit_hybrid --model vit-h14 --batch 64 --precision bf16 \\
        --device cuda --steps 20 --compile --markdown
    tests/bench/compare_pytorch.py --program build/release/bin/vit_hybrid --model vit-b16 --batch 8 --ddp 2 --threads 1

Same model, batch, optimizer (Adam) and precision: bf16 and fp16 are PyTorch's autocast, fp16 on a GPU with its GradScaler;
fp32 has no TF32 on either side, tf32 has it on both. Each measurement is a process of its own (with --ddp N: N processes,
DistributedDataParallel over gloo or nccl against --dp N), and `--rounds` rounds go through all of them in turn, so that what
else the machine does falls on all. Seconds are medians over the steps after those that warm up, by events on a GPU. Without
--program only PyTorch is measured. Memory is the most of one process: resident on the host; on a GPU what LibTorch's
allocator held.
"""
import argparse
import contextlib
import json
import os
import pathlib
import resource
import socket
import statistics
import subprocess
import sys
import tempfile
import time

MODELS = {
    # name: (height, width, patch, in channels, dim, depth, heads, task)
    "weather-short": (360, 720, 8, 20, 384, 6, 8, "forecast"),
    "weather-d12": (360, 720, 8, 20, 384, 12, 8, "forecast"),
    "vit-ti16": (224, 224, 16, 3, 192, 12, 3, "classify"),
    "vit-s16": (224, 224, 16, 3, 384, 12, 6, "classify"),
    "vit-b16": (224, 224, 16, 3, 768, 12, 12, "classify"),
    "vit-l16": (224, 224, 16, 3, 1024, 24, 16, "classify"),
    "vit-h14": (224, 224, 14, 3, 1280, 32, 16, "classify"),
}
MIB = 1 << 20


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

def loss_of(torch, task, out, y):
    if task == "forecast":
        return ((out - y).flatten(1).norm(dim=1) / y.flatten(1).norm(dim=1)).mean()
    return torch.nn.functional.cross_entropy(out, y, label_smoothing=0.1)


def train_step(torch, arguments, model, optimizer, scaler, x, y):
    half = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(arguments.precision)
    optimizer.zero_grad(set_to_none=True)
    with torch.autocast(arguments.device, dtype=half) if half else contextlib.nullcontext():
        out = model(x)
    loss = loss_of(torch, MODELS[arguments.model][-1], out.float(), y)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    return loss


def timed_steps(torch, arguments, step):
    """Seconds of each step that counts. A GPU gets them all without waiting for one, as in a training."""
    is_gpu = arguments.device == "cuda"

    def now():
        if not is_gpu:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    for _ in range(arguments.warm_up):
        step().item()
    marks = [now()]
    for _ in range(arguments.steps):
        loss = step()
        if not is_gpu:
            loss.item()
        marks.append(now())
    if is_gpu:
        torch.cuda.synchronize()
        return [a.elapsed_time(b) * 1e-3 for a, b in zip(marks, marks[1:])]
    return [b - a for a, b in zip(marks, marks[1:])]


def pytorch_worker(arguments):
    """One process of PyTorch; prints its seconds and its memory as a line of JSON."""
    import torch

    rank, world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = arguments.precision == "tf32"
    device = torch.device(arguments.device, rank) if arguments.device == "cuda" else torch.device("cpu")
    if arguments.device == "cuda":
        torch.cuda.set_device(device)
    height, width, _, channels, _, _, _, task = MODELS[arguments.model]
    model = build(torch, arguments.model).to(device)
    if world > 1:
        torch.distributed.init_process_group("nccl" if arguments.device == "cuda" else "gloo")
        model = torch.nn.parallel.DistributedDataParallel(
            model, device_ids=[device] if arguments.device == "cuda" else None)
    if arguments.worker == "compile":
        model = torch.compile(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, betas=(0.9, 0.95), fused=arguments.fused or None)
    scaler = torch.amp.GradScaler(arguments.device, enabled=arguments.precision == "fp16" and arguments.device == "cuda")
    batch = arguments.batch // world
    x = torch.randn(batch, channels, height, width, device=device)
    y = torch.randn_like(x) if task == "forecast" else torch.arange(batch, device=device)
    seconds = timed_steps(torch, arguments, lambda: train_step(torch, arguments, model, optimizer, scaler, x, y))
    memory = {"process": 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss}
    if arguments.device == "cuda":
        memory.update(device=torch.cuda.max_memory_reserved())
    if world > 1:
        torch.distributed.destroy_process_group()
    print(json.dumps({"seconds": seconds, "memory": memory}))


def merged(results):
    """Of all processes of a measurement: each step of the slowest, memory of the largest."""
    return {"seconds": [max(steps) for steps in zip(*(result["seconds"] for result in results))],
            "memory": {what: max(result["memory"][what] for result in results) for what in results[0]["memory"]}}


def finished(what, process, errors):
    """Waits for a process; what it said on standard error is passed on where it went well, and is the end of all, with
    its last line as the reason, where it did not."""
    output = process.communicate()[0]
    errors.seek(0)
    said = errors.read()
    if process.returncode == 0:
        sys.stderr.write(said)
        return output
    lines = [line for line in said.splitlines() if line.strip()]
    own = [line for line in lines if line.startswith("vit_hybrid: ") and not line.startswith("vit_hybrid: warning: ")]
    end = f"exit code {process.returncode}" if process.returncode > 0 else f"signal {-process.returncode}"
    sys.exit(f"compare_pytorch: {what} ended with {end}: {(own or lines or ['it said nothing'])[-1].strip()}")


def started(what, words, environment, **streams):
    try:
        return subprocess.Popen(words, env=environment, text=True, **streams)
    except OSError as error:
        sys.exit(f"compare_pytorch: {what} cannot be started: {error.strerror}: {error.filename}")


def run_pytorch(arguments, kind):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    words = [sys.executable, __file__, "--worker", kind]
    for name in ("model", "batch", "threads", "steps", "warm-up", "precision", "device"):
        words += [f"--{name}", str(getattr(arguments, name.replace("-", "_")))]
    words += ["--fused"] if arguments.fused else []
    what = f"PyTorch ({kind})"
    workers = []
    for rank in range(arguments.ddp):
        environment = dict(os.environ, OMP_NUM_THREADS=str(arguments.threads), RANK=str(rank),
                           WORLD_SIZE=str(arguments.ddp), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
        errors = tempfile.TemporaryFile("w+")
        workers.append((started(what, words, environment, stdout=subprocess.PIPE, stderr=errors), errors))
    try:
        outputs = [finished(what, *worker) for worker in workers]
    finally:
        for process, _ in workers:  # where one failed, the others may wait for it
            process.kill()
    return merged([json.loads(output.splitlines()[-1]) for output in outputs])


def run_program(arguments):
    """vit_hybrid on generated data, from its records."""
    steps = arguments.warm_up + arguments.steps
    environment = dict(os.environ, OMP_NUM_THREADS=str(arguments.threads), MKL_NUM_THREADS=str(arguments.threads))
    environment.setdefault("OMPI_ALLOW_RUN_AS_ROOT", "1")
    environment.setdefault("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
    with tempfile.TemporaryDirectory() as folder:
        run = pathlib.Path(folder) / "run"
        launcher = ["mpirun", "-q", "--bind-to", "none", "-n", str(arguments.ddp)] if arguments.ddp > 1 else []
        command = launcher + [arguments.program, "--preset", arguments.model, "--data", "synthetic",
                              "--steps", str(steps), "--dp", str(arguments.ddp), "--device", arguments.device,
                              "--precision", arguments.precision, "--global-batch-size", str(arguments.batch),
                              "--micro-batch-size", str(arguments.batch // arguments.ddp),
                              "--generated-samples", str(arguments.batch * steps), "--generated-valid-samples", "0",
                              "--optimizer", "adam", "--keep-checkpoints", "none", "--run-dir", str(run)]
        with tempfile.TemporaryFile("w+") as errors:
            finished("vit_hybrid", started("vit_hybrid", command + arguments.options, environment,
                                           stdout=subprocess.DEVNULL, stderr=errors), errors)
        lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        memory = [rank["memory"] for rank in json.loads((run / "summary.json").read_text())["ranks"]]
    seconds = [line["seconds"]["step"] for line in lines if line["kind"] == "step"][arguments.warm_up:]
    peaks = {"process": max(rank["process_peak"] for rank in memory)}
    if arguments.device == "cuda":
        peaks.update(device=max(rank["allocator_peak"] for rank in memory))
    return {"seconds": seconds, "memory": peaks}


def measure(arguments):
    """{name: {"seconds": of all rounds, "memory"}} in the order in which they are measured."""
    kinds = ["eager"] + (["compile"] if arguments.compile else [])
    results = {}
    for _ in range(arguments.rounds):
        measured = [("vit_hybrid", run_program(arguments))] if arguments.program else []
        measured += [(kind, run_pytorch(arguments, kind)) for kind in kinds]
        for name, result in measured:
            both = results.setdefault(name, {"seconds": [], "memory": {}})
            both["seconds"] += result["seconds"]
            both["memory"] = {what: max(size, both["memory"].get(what, 0)) for what, size in result["memory"].items()}
    return results


def report_of(arguments, results):
    report = {name: getattr(arguments, name)
              for name in ("model", "batch", "precision", "device", "threads", "ddp", "steps", "rounds")}
    for name, result in results.items():
        seconds = statistics.median(result["seconds"])
        report[name] = {"seconds": seconds, "samples_per_s": arguments.batch / seconds, "memory": result["memory"]}
    for name in ("eager", "compile"):
        if name in results and "vit_hybrid" in results:
            report[f"ratio_to_{name}"] = report[name]["seconds"] / report["vit_hybrid"]["seconds"]
    return report


def markdown(report):
    """A table of one row, for docs/results."""
    what = "device" if report["device"] == "cuda" else "process"
    ranks = f"{report['ddp']} x {report['threads']} threads" if report["device"] == "cpu" else f"{report['ddp']} GPU"
    cells = [("model", report["model"]), ("batch", report["batch"]), ("precision", report["precision"]), ("on", ranks)]
    for name, title in (("vit_hybrid", "samples/s"), ("eager", "eager"), ("compile", "torch.compile")):
        if name in report:
            cells.append((title, f"{report[name]['samples_per_s']:.3f}"))
    for name in ("eager", "compile"):
        if f"ratio_to_{name}" in report:
            cells.append((f"times {'eager' if name == 'eager' else 'torch.compile'}", f"{report[f'ratio_to_{name}']:.2f}"))
    for name, title in (("vit_hybrid", "MiB"), ("eager", "MiB eager"), ("compile", "MiB torch.compile")):
        if name in report:
            cells.append((title, f"{report[name]['memory'][what] / MIB:.0f}"))
    rows = [[str(title) for title, _ in cells], ["---"] * len(cells), [str(value) for _, value in cells]]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=sorted(MODELS), default="weather-short")
    parser.add_argument("--batch", type=int, default=1, help="global")
    parser.add_argument("--precision", choices=["fp32", "tf32", "bf16", "fp16"], default="fp32")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="of each process")
    parser.add_argument("--ddp", type=int, default=1, metavar="N", help="N processes that share the batch")
    parser.add_argument("--compile", action="store_true", help="torch.compile beside eager")
    parser.add_argument("--fused", action="store_true", help="PyTorch's Adam in its fused form")
    parser.add_argument("--steps", type=int, default=3, help="that count, in each round")
    parser.add_argument("--warm-up", type=int, default=0, help="steps before them (default: 1, on a GPU 5)")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--program", help="path of vit_hybrid")
    parser.add_argument("--markdown", action="store_true", help="a row of a table instead of JSON")
    parser.add_argument("--worker", choices=["eager", "compile"], help=argparse.SUPPRESS)
    parser.add_argument("options", nargs="*", help="after --: further options of vit_hybrid")
    arguments = parser.parse_args()
    arguments.warm_up = arguments.warm_up or (5 if arguments.device == "cuda" else 1)
    if arguments.batch % arguments.ddp:
        parser.error(f"--batch {arguments.batch} is no multiple of --ddp {arguments.ddp}")
    return arguments


def main():
    arguments = parse()
    if arguments.worker:
        pytorch_worker(arguments)
        return
    report = report_of(arguments, measure(arguments))
    print(markdown(report) if arguments.markdown else json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
