#!/usr/bin/env python3
"""Seconds from the launch of a job to the end of its first training step: vit_hybrid under mpirun, PyTorch under torchrun.

    tests/bench/start_up.py --program build/release/bin/vit_hybrid --ranks 2 16

The same small ViT (128 features, 4 blocks, 32 x 64 fields of 8 channels), one sample a rank, noise as data, data parallel;
PyTorch with DistributedDataParallel over gloo. Needs the torch package for the comparison. Prints seconds and their ratio,
and for vit_hybrid also the seconds until the whole job has ended.
"""
import argparse
import os
import pathlib
import subprocess
import sys
import tempfile
import time


def worker():
    import torch
    import compare_pytorch

    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo")
    compare_pytorch.MODELS["small"] = (32, 64, 4, 8, 128, 4, 4, "forecast")
    model = torch.nn.parallel.DistributedDataParallel(compare_pytorch.build(torch, "small"))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    x = torch.randn(1, 8, 32, 64)
    model(x).square().mean().backward()
    optimizer.step()
    if torch.distributed.get_rank() == 0:
        print("first step", time.time(), flush=True)
    torch.distributed.destroy_process_group()


def seconds_of(command, environment, marker):
    """Seconds to the line with `marker`, and to the end."""
    start = time.time()
    first = None
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                          text=True) as job:
        for line in job.stdout:
            if first is None and marker in line:
                first = time.time() - start
    if job.returncode != 0 or first is None:
        sys.exit(f"{' '.join(command)} failed with exit code {job.returncode}")
    return first, time.time() - start


def main():
    if "RANK" in os.environ:
        worker()
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default="build/release/bin/vit_hybrid")
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 16])
    arguments = parser.parse_args()
    environment = dict(os.environ, OMP_NUM_THREADS="1", MKL_NUM_THREADS="1", OMPI_ALLOW_RUN_AS_ROOT="1",
                       OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", OMPI_MCA_mpi_yield_when_idle="1")
    for ranks in arguments.ranks:
        with tempfile.TemporaryDirectory() as folder:
            ours = ["mpirun", "-q", "--oversubscribe", "--bind-to", "none", "-n", str(ranks),
                    str(pathlib.Path(arguments.program).resolve()), "--data", "synthetic", "--image-size", "32x64",
                    "--patch-size", "4", "--in-channels", "8", "--embed-dim", "128", "--depth", "4", "--num-heads", "4",
                    "--global-batch-size", str(ranks), "--generated-samples", str(ranks), "--generated-valid-samples", "0",
                    "--steps", "1", "--log-interval", "1", "--run-dir", folder + "/run"]
            first, end = seconds_of(ours, environment, "step 1/1")
        theirs, _ = seconds_of([sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(ranks), __file__],
                               environment, "first step")
        print(f"{ranks} ranks: vit_hybrid {first:.2f} s (whole job {end:.2f} s), torchrun {theirs:.2f} s, "
              f"ratio {first / theirs:.2f}")


if __name__ == "__main__":
    main()
