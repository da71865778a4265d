#!/usr/bin/env python3
"""Trainings whose ranks add up where the others' gradients lie have the bits of those of which one rank cannot share, also
when ranks are stopped and go on at any moment; the latter warn once, on the right rank, and the former not.

    shared_memory_bits.py PROGRAM WORK_DIR LAUNCHER WORDS...   (the launcher's words end with -n)
"""
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

program, work, launcher = sys.argv[1], Path(sys.argv[2]).resolve(), sys.argv[3:]
STEPS = 12
MODEL = ("--data synthetic --task classify --image-size 16 --patch-size 4 --embed-dim 64 --depth 2 --num-heads 4 --num-classes 10 "
         f"--generated-samples 32 --generated-valid-samples 4 --steps {STEPS} --threads 1 --timeout 20 --bucket-mb 0.05").split()
LAYOUTS = [  # ranks, the one that shares nothing, options
    (4, 2, "--dp 4 --global-batch-size 7"),
    (4, 3, "--dp 4 --zero-shard-size 2 --precision bf16 --reduce-dtype half --global-batch-size 8"),
    (4, 1, "--dp 2 --tp 2 --zero 0 --precision fp16 --global-batch-size 8"),
]
SHIM = "#include <errno.h>\nint memfd_create(const char *n, unsigned f) { errno = ENOSYS; return -1; }\n"


def ranks_of(folder):
    found = []
    for entry in os.listdir("/proc"):
        try:
            words = open(f"/proc/{entry}/cmdline", "rb").read().split(b"\0") if entry.isdigit() else [b""]
        except OSError:
            continue
        if words[0] == program.encode() and str(folder).encode() in words:
            found.append(int(entry))
    return found


def disturb(job, folder, rng):
    while job.poll() is None:
        pids = ranks_of(folder) if (folder / "metrics.jsonl").exists() else []
        for sent, most in ((signal.SIGSTOP, 0.03), (signal.SIGCONT, 0.01)):
            if sent == signal.SIGSTOP:
                some = rng.sample(pids, min(len(pids), rng.randint(1, 2)))
            for pid in some:
                try:
                    os.kill(pid, sent)
                except ProcessLookupError:
                    pass
            time.sleep(rng.uniform(0.001, most))


def main():
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    (work / "shim.c").write_text(SHIM)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", work / "shim.so", work / "shim.c"], check=True)
    failures = []
    for number, (ranks, unshared, options) in enumerate(LAYOUTS):
        states = []
        for shares in (True, False):
            folder = work / f"{number}-{'shared' if shares else 'slots'}"
            one = "" if shares else f'[ "${{OMPI_COMM_WORLD_RANK:-$PMI_RANK}}" != {unshared} ] || export LD_PRELOAD={work}/shim.so; '
            with open(f"{folder}.out", "w") as out:
                job = subprocess.Popen([*launcher, str(ranks), "sh", "-c", one + 'exec "$@"', "sh", program, *MODEL, *options.split(),
                                        f"--run-dir={folder}"], stdout=out, stderr=subprocess.STDOUT)
                if shares:
                    disturb(job, folder, random.Random(number))
                if job.wait(60) != 0:
                    failures.append(f"{options}: exit code {job.returncode}, see {folder}.out")
            text = Path(f"{folder}.out").read_text()
            warnings = [line for line in text.splitlines() if "goes through /dev/shm instead" in line]
            if len(warnings) != (0 if shares else 1) or not all(f"rank {unshared} of {ranks} " in line for line in warnings):
                failures.append(f"{options}: {warnings}")
            if ("of other ranks of its node" in text) != shares:
                failures.append(f"{options}: what is mapped, or that nothing is, is not said: see {folder}.out")
            states.append(folder / "checkpoints" / f"step-{STEPS:09d}.h5")
        done = subprocess.run([program, "checkpoint", "diff", *states], capture_output=True, text=True)
        if done.returncode != 0:
            failures.append(f"{options}: {done.stdout}{done.stderr}")
    for failure in failures:
        print("FAILED:", failure)
    return 1 if failures else 0


sys.exit(main())
