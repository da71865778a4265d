#!/usr/bin/env python3
# Makes one rank of a job slow for a while, in the middle of its training, again and again, and looks at what the job says:
# whether it names the rank and the part of its work, in how many steps, and that it is well again. Runs in which nobody is
# slow must say nothing. A rank is slow because
#   stop    it is stopped for a sixth of the time (SIGSTOP, SIGCONT), in pieces shorter than a step
#   quota   it gets less of a processor than the others take (a control group's quota)
#   read    its reads take longer (tests/support/slow_reads.c)
# and with two nodes, of links of 1 Gb/s, everybody waits because
#   link    one of them sends at half the rate (tc tbf): the run is to name it
#
#   stragglers.py PROGRAM SHIM WORK [--trials N] [--clean N] [--ranks N] [--nodes one|two] [--kinds stop,read] [--seed S]
#                 -- MPIRUN...
import argparse
import collections
import glob
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time

from stalls import Job, Nodes, end_in_order

MODEL = ("--depth 4 --embed-dim 192 --num-heads 4 --in-channels 5 --out-channels 5 --image-size 32x64 "
         "--train-data data/train --valid-data data/valid --stats data/stats --keep-checkpoints none --threads 1 "
         "--log-interval 1000").split()
SAMPLES = 48  # a step
SAMPLES_OF_LINK = 24  # where messages shall be much of it
STEPS_BEFORE = 16  # a job's first spell begins after so many
STEPS_TO_NAME = 20
STEPS_TO_RECOVER = 60
CLEAN_STEPS = 60
SECONDS = 120.0  # of waiting for anything
# Seconds, a sixth of the time. A rank that shares its core must be away for longer than it waits for the core anyway.
STOPPED, RUNNING = 0.004, 0.020
STOPPED_ON_SHARED_CORE, RUNNING_ON_SHARED_CORE = 0.024, 0.120
SLOWER = 1.2
LINK_MBIT = 1000
SLOW_READS = 1.6  # a sample takes so much of a step, in one read or more
KEYS_OF_NETWORK = {"kind", "step", "slow", "from_step", "to_step", "seconds_per_step", "percent", "slow_link", "found", "time"}
NOBODY = -1  # who is slow where a link is
WORK_PARTS = ("forward", "backward", "rest", "optimizer", "reduce")


class Stops(threading.Thread):
    """Stops a process for a part of the time."""

    def __init__(self, pid, shares_core):
        super().__init__(daemon=True)
        self.pid = pid
        self.stopped = STOPPED_ON_SHARED_CORE if shares_core else STOPPED
        self.running = RUNNING_ON_SHARED_CORE if shares_core else RUNNING
        self.is_over = threading.Event()
        self.start()

    def run(self):
        try:
            while not self.is_over.wait(self.running):
                os.kill(self.pid, signal.SIGSTOP)
                time.sleep(self.stopped)
                os.kill(self.pid, signal.SIGCONT)
        except ProcessLookupError:
            pass

    def end(self):
        self.is_over.set()
        self.join()


class Quota:
    """A control group that gets a share of a processor."""

    period = 10000  # microseconds

    def __init__(self, pid, share):
        self.path = f"/sys/fs/cgroup/cpu/stragglers-{os.getpid()}"
        os.makedirs(self.path, exist_ok=True)
        self.pid = pid
        self.write("cpu.cfs_period_us", self.period)
        self.write("cpu.cfs_quota_us", max(1000, round(self.period * share)))
        self.write("cgroup.procs", pid)

    def write(self, name, value):
        with open(os.path.join(self.path, name), "w") as file:
            file.write(str(value))

    def end(self):
        try:
            with open("/sys/fs/cgroup/cpu/cgroup.procs", "w") as file:
                file.write(str(self.pid))
        except ProcessLookupError:
            pass
        os.rmdir(self.path)


class SlowReads:
    """So many microseconds a read."""

    def __init__(self, name, microseconds):
        self.name = name
        with open(name + ".new", "w") as file:
            file.write(str(microseconds))
        os.rename(name + ".new", name)

    def end(self):
        os.remove(self.name)


class SlowLink:
    """Half the rate out of a node."""

    def __init__(self, node):
        self.node = node
        limit_link(node, LINK_MBIT // 2)

    def end(self):
        limit_link(self.node, LINK_MBIT)


def limit_link(node, mbit):
    subprocess.run(["ip", "netns", "exec", node, "tc", "qdisc", "replace", "dev", "eth0", "root", "tbf", "rate", f"{mbit}mbit",
                    "burst", "256kb", "latency", "200ms"], check=True)


class Run:
    """A job that trains for long, and what it has recorded so far."""

    def __init__(self, campaign, steps):
        self.campaign = campaign
        self.folder = f"run{Job.number + 1}"
        env = {"VIT_HYBRID_TEST_SLOW_READS": os.path.join(campaign.work, self.folder + ".slow")}
        os.environ.update(env)
        command = [campaign.program, *MODEL, *campaign.layout, "--global-batch-size", str(campaign.samples), "--steps",
                   str(steps), "--run-dir", self.folder]
        self.job = Job(campaign, campaign.ranks, command, campaign.nodes is not None, preload=True,
                       names=["VIT_HYBRID_TEST_SLOW_READS"])
        self.slow_name = env["VIT_HYBRID_TEST_SLOW_READS"]
        self.path = os.path.join(campaign.work, self.folder, "metrics.jsonl")
        self.read_bytes = 0
        self.step = 0
        self.found = []  # records of stragglers

    def read(self):
        try:
            with open(self.path, "rb") as file:
                file.seek(self.read_bytes)
                text = file.read()
        except OSError:
            return
        whole = text[:text.rfind(b"\n") + 1]
        self.read_bytes += len(whole)
        for line in whole.splitlines():
            record = json.loads(line)
            if record["kind"] == "step":
                self.step = record["step"]
                if record["samples"] == self.campaign.samples:  # not an epoch's last, which is smaller
                    self.seconds = record["seconds"]["step"]
            elif record["kind"] == "straggler":
                self.found.append(record)
            elif record["kind"] == "network":
                if set(record) != KEYS_OF_NETWORK:  # as docs/schemas/metrics.schema.json has them
                    sys.exit(f"stragglers: a record of the network has other keys: {record}")
                self.found.append({**record, "rank": NOBODY, "part": "communication"})

    def wait_until(self, condition):
        until = time.monotonic() + SECONDS
        while time.monotonic() < until and not self.job.ended():
            self.read()
            if condition():
                return True
            time.sleep(0.02)
        self.read()
        return condition()

    def end(self):
        self.job.end_all()
        self.job.finish()
        for name in glob.glob(self.slow_name + "*"):
            os.remove(name)


Result = collections.namedtuple("Result", "kind victim named part steps others recovered")


class Campaign:
    def __init__(self, options):
        self.program, self.shim = (os.path.realpath(path) for path in (options.program, options.shim))
        self.work = os.path.realpath(options.work)
        shutil.rmtree(self.work, ignore_errors=True)
        os.makedirs(self.work)
        self.mpirun = options.mpirun
        self.limit = 60
        self.ranks = options.ranks
        self.layout = options.layout.split() or ["--dp", str(options.ranks)]
        self.random = random.Random(options.seed)
        self.kinds = options.kinds.split(",")
        self.samples = SAMPLES_OF_LINK if self.kinds == ["link"] else SAMPLES
        self.verbose = options.verbose
        self.nodes = Nodes(self.work) if options.nodes == "two" else None
        if "link" in self.kinds:
            for node in self.nodes.names:
                limit_link(node, LINK_MBIT)
        done = subprocess.run([self.program, "data", "generate", "--out", "data", "--train-years", "4", "--valid-years", "1",
                               "--steps-per-year", "400", "--channels", "5", "--height", "32", "--width", "64"],
                              cwd=self.work, capture_output=True, text=True, timeout=300)
        if done.returncode != 0:
            sys.exit(f"stragglers: no data: {done.stderr}")

    def disturb(self, run, kind, victim):
        if kind == "link":
            return SlowLink(victim)
        rank = victim
        pid = run.job.processes()[rank]
        if kind == "stop":
            return Stops(pid, self.ranks > len(os.sched_getaffinity(0)))
        if kind == "quota":
            return Quota(pid, 1.0 / SLOWER)
        return SlowReads(f"{run.slow_name}.{rank}", round(1e6 * SLOW_READS * run.seconds * self.ranks / self.samples))

    def trial(self, run):
        kind = self.random.choice(self.kinds)
        victim = self.random.choice(self.nodes.names) if kind == "link" else self.random.randrange(self.ranks)
        rank = NOBODY if kind == "link" else victim
        run.read()
        begin = run.step
        first = len(run.found)
        disturbance = self.disturb(run, kind, victim)
        own = lambda is_slow: [f for f in run.found[first:] if f["rank"] == rank and f["slow"] == is_slow]
        run.wait_until(lambda: own(True) or run.step > begin + 2 * STEPS_TO_NAME)
        disturbance.end()
        others = [f["rank"] for f in run.found[first:] if f["rank"] != rank and f["slow"]]
        end = run.step
        named = own(True)
        wanted = STEPS_TO_RECOVER if named else STEPS_BEFORE
        run.wait_until(lambda: (named and own(False)) or run.step > end + wanted)
        recovered = own(False)[0]["step"] - end if own(False) else None
        part = named[0]["part"] if named else ""
        if kind == "link" and named and f"from {victim} to" not in named[0]["found"]:
            part = named[0]["found"]
        result = Result(kind, victim, bool(named), part, named[0]["step"] - begin if named else None, others, recovered)
        if self.verbose or not self.is_right(result):
            print(f"{'' if self.is_right(result) else 'BAD '}{result} {named[:1]}", flush=True)
        return result

    @staticmethod
    def is_right(result):
        parts = {"read": ("data_wait",), "link": ("communication",)}.get(result.kind, WORK_PARTS)
        return result.named and result.part in parts and not result.others and result.steps <= STEPS_TO_NAME

    def trials(self, count):
        results = []
        run = None
        try:
            while len(results) < count:
                # Where it has not told that somebody is well again, the next trial would tell nothing.
                if run is None or run.job.ended() or run.step > 3000 or results[-1].named and results[-1].recovered is None:
                    if run is not None:
                        run.end()
                    run = Run(self, 4000)
                    if not run.wait_until(lambda: run.step >= STEPS_BEFORE):
                        sys.exit(f"stragglers: the job does not train: {run.job.lines[-5:]}")
                results.append(self.trial(run))
        finally:
            if run is not None:
                run.end()
        return results

    def clean(self):
        """Whether a job that nobody disturbs names nobody."""
        run = Run(self, CLEAN_STEPS)
        run.wait_until(run.job.ended)
        run.read()
        run.job.finish()
        if run.step < CLEAN_STEPS:
            sys.exit(f"stragglers: an undisturbed job ended after step {run.step}: {run.job.lines[-5:]}")
        if run.found:
            print(f"BAD clean run: {run.found}", flush=True)
        return not run.found


def main():
    words = sys.argv[1:]
    cut = words.index("--") if "--" in words else len(words)
    parser = argparse.ArgumentParser()
    for name in ("program", "shim", "work"):
        parser.add_argument(name)
    parser.add_argument("--trials", type=int, default=4)
    parser.add_argument("--clean", type=int, default=2)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--layout", default="")
    parser.add_argument("--nodes", choices=["one", "two"], default="one")
    parser.add_argument("--kinds", default="stop,read")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args(words[:cut])
    options.mpirun = words[cut + 1:] or ["mpirun", "-q", "--oversubscribe", "--bind-to", "none", "-n"]
    signal.signal(signal.SIGTERM, end_in_order)
    campaign = Campaign(options)
    try:
        results = campaign.trials(options.trials)
        silent = sum(campaign.clean() for _ in range(options.clean))
    finally:
        if campaign.nodes is not None:
            campaign.nodes.close()
    right = sum(map(campaign.is_right, results))
    for kind in campaign.kinds:
        some = [r for r in results if r.kind == kind]
        steps = sorted(r.steps for r in some if r.named)
        print(f"{kind}: {len(some)} trials, named {sum(r.named for r in some)}, right {sum(map(campaign.is_right, some))}, "
              f"steps {steps[len(steps) // 2] if steps else '-'} (most {steps[-1] if steps else '-'}), others named too "
              f"{sum(bool(r.others) for r in some)}, recovery told {sum(r.recovered is not None for r in some)}, "
              f"parts {dict(collections.Counter(r.part for r in some))}")
    print(f"clean runs: {options.clean}, silent {silent}")
    return 0 if right >= 0.99 * len(results) and silent == options.clean else 1


if __name__ == "__main__":
    sys.exit(main())
