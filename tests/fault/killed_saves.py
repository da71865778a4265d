#!/usr/bin/env python3
"""Kills a run at each step of its saves, starts two jobs in one folder, and wakes jobs that have lost their folder.

    killed_saves.py [--tier default|full|all] [--seed N] [--only kills|jobs|zombies] PROGRAM SHIM

SHIM is the library of tests/support/failing_calls.c. A short run saves after each of its steps, validates, keeps one
checkpoint and the best, once on the main thread and once in the background. Its calls on files are counted first; then:

- kills: a run is killed before or after one of those calls, and started again with --resume auto. That run must end
  well, go on from the last checkpoint that was whole, have the bits of one that was never killed, and leave no
  half-written file and no lock.
- jobs: a second job in the folder of one that runs is refused at once with code 73 and its name, and the first has the
  right bits; of four that start at once in a new folder exactly one runs.
- zombies: a run is stopped (SIGSTOP) before or after one of those calls, or somewhere in between; another takes the
  folder over with --resume auto; the first is woken (SIGCONT) while the other starts, or when it has ended. It must end
  with code 73 and say who has the folder; no file changes by it, and the other's run has the right bits. (One thing
  cannot be called back: the call that was under way when it was stopped, be it the removal of a superseded checkpoint or
  the naming of a whole one.)

The tiers take a seeded choice (default: a few; full: a tenth, but at least 20 zombies) or everything. Prints a table.
"""

import argparse
import hashlib
import json
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from checked_folder import CheckedFolder  # noqa: E402

STEPS = 4
RENEWAL = 0.3
LIMIT = float(os.environ.get("VIT_HYBRID_TEST_FAULT_SECONDS", "60"))
OPTIONS = ["--generated-samples", "32", "--generated-valid-samples", "3", "--depth", "1", "--embed-dim", "32",
           "--global-batch-size", "16", "--checkpoint-every", "1", "--keep-checkpoints", "1",
           "--deterministic", "--threads", "1", "--lock-renewal", str(RENEWAL)]


class Campaign:
    def __init__(self, program, shim, work, seed):
        self.program, self.shim, self.work = program, shim, work
        self.random = random.Random(seed)
        self.failures = []
        self.counts = {}
        self.number = 0
        self.processes = []

    def check(self, holds, what):
        if not holds:
            self.failures.append(what)
            print("FAILED:", what, flush=True)
        return holds

    def count(self, row, seconds=None):
        number, longest = self.counts.get(row, (0, 0.0))
        self.counts[row] = (number + 1, max(longest, seconds or 0.0))

    def folder(self):
        self.number += 1
        return os.path.join(self.work, f"run-{self.number}")

    def start(self, folder, *options, steps=STEPS, fault=None, calls=None, is_async=False):
        environment = dict(os.environ)
        if fault or calls:
            asan = subprocess.run(["ldd", self.program], capture_output=True, text=True).stdout
            asan = [line.split()[2] for line in asan.splitlines() if line.strip().startswith("libasan")]
            environment["LD_PRELOAD"] = ":".join(asan + [self.shim])
        if fault:
            environment["VIT_HYBRID_TEST_FAULT"] = fault
        if calls:
            environment["VIT_HYBRID_TEST_CALLS"] = calls
        words = [self.program, *OPTIONS, "--steps", str(steps), "--run-dir", folder, *options]
        if is_async:
            words.append("--checkpoint-async")
        self.number += 1
        out = os.path.join(self.work, f"out-{self.number}")
        with open(out, "w") as file:
            process = subprocess.Popen(words, stdout=file, stderr=subprocess.STDOUT, env=environment)
        process.out = out
        self.processes.append(process)
        return process

    def end_all(self):
        """Whatever is still there, stopped or not."""
        for process in self.processes:
            if process.poll() is None:
                process.kill()
                process.wait()

    def end(self, process):
        """The exit code, and what was printed; hangs are ended and told as such."""
        try:
            code = process.wait(LIMIT)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            code = "hangs"
        with open(process.out) as file:
            return code, file.read()

    def text_so_far(self, process):
        with open(process.out) as file:
            return file.read()

    def wait_until(self, process, holds, what):
        """Until it holds or the process ends; one that does neither is told as such."""
        until = time.monotonic() + LIMIT
        while not holds() and process.poll() is None:
            if not self.check(time.monotonic() < until, f"{what}: not within {LIMIT:.0f} s"):
                return
            time.sleep(0.002)

    def run(self, *arguments, **named):
        return self.end(self.start(*arguments, **named))

    def last_checkpoint(self, folder):
        return os.path.join(folder, "checkpoints", f"step-{STEPS:09d}.h5")

    def differing_tensors(self, one, other):
        """The lines on tensors of a comparison, which must be one; and how it ended."""
        done = subprocess.run([self.program, "checkpoint", "diff", "--all", one, other], capture_output=True, text=True)
        return [line for line in done.stdout.splitlines() if "parameters/" in line or "optimizer/" in line], done

    def same_bits(self, folder, straight, what):
        tensors, done = self.differing_tensors(self.last_checkpoint(straight), self.last_checkpoint(folder))
        self.check(done.returncode in (0, 1) and not tensors and not done.stderr,
                   f"{what}: other bits than the straight run: {done.stdout[-300:]} {done.stderr[-300:]}")
        self.nothing_left(folder, STEPS, what)

    def nothing_left(self, folder, steps, what):
        with open(os.path.join(folder, "checkpoints", "latest")) as file:
            self.check(file.read() == f"step-{steps:09d}.h5\n", f"{what}: latest is not the last checkpoint")
        left = [name for part in (folder, os.path.join(folder, "checkpoints")) for name in os.listdir(part)
                if "partial" in name or "lock" in name]
        self.check(not left, f"{what}: left over: {left}")

    def can_tell_bits(self, straight):
        """That other bits are found, where there are some."""
        other = self.folder()
        self.run(other, "--seed", "2")
        tensors, done = self.differing_tensors(self.last_checkpoint(straight), self.last_checkpoint(other))
        self.check(done.returncode == 1 and tensors, f"other bits are not told: {done.stdout[-300:]}")

    def places_to_go_on(self, folder):
        """Steps from which a start may go on: that of `latest`, and of the newest checkpoint that has its name."""
        checkpoints = os.path.join(folder, "checkpoints")
        names = os.listdir(checkpoints) if os.path.isdir(checkpoints) else []
        steps = {int(found[1]) for found in (re.fullmatch(r"step-(\d+)\.h5", name) for name in names) if found}
        newest = max(steps, default=0)
        if "latest" not in names:
            return {newest}
        with open(os.path.join(checkpoints, "latest")) as file:
            return {newest, int(file.read()[len("step-"):-len(".h5\n")])}

    def records(self, folder):
        with open(os.path.join(folder, "metrics.jsonl")) as file:
            return [json.loads(line) for line in file if line.endswith("}\n")]

    def wait_for_records(self, folder, process):
        path = os.path.join(folder, "metrics.jsonl")
        self.wait_until(process, lambda: os.path.exists(path) and self.records(folder), f"the first record of {folder}")

    def steps_of_last_part(self, folder):
        steps = []
        for record in self.records(folder):
            if record["kind"] == "start":
                steps = []
            if record["kind"] == "step":
                steps.append(record["step"])
        return steps

    def contents(self, folder):
        """What every file holds."""
        out = {}
        for part, _, names in os.walk(folder):
            for name in names:
                path = os.path.join(part, name)
                with open(path, "rb") as file:
                    out[path] = hashlib.sha256(file.read()).hexdigest()
        return out

    def goes_on(self, folder, text, places, steps, what):
        """That the last part of a run, which said `text`, began behind one of the `places` and came to its end."""
        done = self.steps_of_last_part(folder)
        ways = [list(range(place + 1, steps + 1)) for place in places]
        self.check(steps in places if "nothing is left to do" in text else done and done in ways,
                   f"{what}: steps {done}, where {sorted(places)} were saved")

    # --- where a run may be hit

    def places(self, is_async):
        """(call, number, path) of every call that a run makes on files of its folder."""
        folder, calls = self.folder(), os.path.join(self.work, f"calls-{is_async}")
        code, text = self.run(folder, calls=calls, is_async=is_async)
        self.check(code == 0, f"the straight run fails: {text[-500:]}")
        numbers, places = {}, []
        with open(calls) as file:
            for line in file:
                _, call, path = line.split()
                numbers[call] = numbers.get(call, 0) + 1
                places.append((call, numbers[call], os.path.basename(path)))
        return folder, places

    # --- the three parts

    def killed(self, place, is_after, is_async, straight):
        call, number, path = place
        what = f"killed {'after' if is_after else 'before'} {call} {number} ({path}{', async' if is_async else ''})"
        folder = self.folder()
        code, _ = self.run(folder, fault=f"0 {call} {number} {-1 if is_after else 0}", is_async=is_async)
        if not self.check(code == -signal.SIGKILL, f"{what}: ended with {code}, not killed"):
            return
        places = self.places_to_go_on(folder)
        begin = time.monotonic()
        code, text = self.run(folder, "--resume", "auto", is_async=is_async)
        if self.check(code == 0, f"{what}: --resume auto ends with {code}: {text[-500:]}"):
            self.same_bits(folder, straight, what)
            self.goes_on(folder, text, places, STEPS, what)
        self.count(f"killed {'after' if is_after else 'before'} a call{', async' if is_async else ''}",
                   time.monotonic() - begin)

    def stopped_at(self, process):
        """Whether the process came to its SIGSTOP."""
        for _ in range(int(LIMIT / 0.01)):
            with open(f"/proc/{process.pid}/stat") as file:
                state = file.read().rsplit(")", 1)[1].split()[0]
            if state in "TZ":
                return state == "T"
            time.sleep(0.01)
        return False

    def zombie(self, place, is_after, is_async, wakes_early, straight):
        """`place`: a call, or seconds after the start of training."""
        folder = self.folder()
        if isinstance(place, float):
            what = f"zombie stopped {place:.3f} s after its first record"
            first = self.start(folder, steps=4000)
            self.wait_for_records(folder, first)
            time.sleep(place)
            first.send_signal(signal.SIGSTOP)
        else:
            call, number, path = place
            what = f"zombie stopped {'after' if is_after else 'before'} {call} {number} ({path})"
            first = self.start(folder, fault=f"0 {call} {number} {-3 if is_after else -2}", is_async=is_async)
        what += ", woken " + ("early" if wakes_early else "late")
        if not self.check(self.stopped_at(first), f"{what}: it does not stop"):
            first.kill()
            first.wait()
            return
        # One that was stopped late in a long run is beyond the steps of the other: it goes on from where that was.
        steps = STEPS
        if isinstance(place, float):
            done = [r["step"] for r in self.records(folder) if r["kind"] == "step"]
            steps = max(done, default=0) + STEPS
        places = self.places_to_go_on(folder)
        if wakes_early and not isinstance(place, float) and place[0] == "rename" and not is_after:
            # It was about to name a whole checkpoint, and may do so before the other looks.
            places |= {int(step) for step in re.findall(r"^step-(\d+)\.h5", place[2])}
        second = self.start(folder, "--resume", "auto", steps=steps, is_async=is_async)
        if wakes_early:
            self.wait_until(second, lambda: "is taken over from process" in self.text_so_far(second),
                            f"{what}: the other takes over")
        else:
            self.wait_until(second, lambda: False, f"{what}: the other ends")
        before = {} if wakes_early else self.contents(folder)  # else the other still writes
        first.send_signal(signal.SIGCONT)
        begin = time.monotonic()
        code, text = self.end(first)
        seconds = time.monotonic() - begin
        has_word = f"was taken over by process {second.pid} " in text or "has lost this job's lock" in text
        # Behind the last call of all it has nothing left to write, and a good end; also where that call was under way,
        # and the other had not removed the file yet.
        is_last = isinstance(place, tuple) and place[0] == "rename" and "summary.json" in place[2]
        has_lost = code == 73 and has_word and "writes nothing more" in text
        self.check(code == 0 if is_last and is_after else has_lost or (code == 0 and is_last and wakes_early),
                   f"{what}: the zombie ends with {code}: {text[-500:]}")
        if not wakes_early:
            after = self.contents(folder)
            if isinstance(place, tuple) and place[0] == "remove" and not is_after:
                before.pop(os.path.join(folder, "checkpoints", place[2]), None)
            self.check(after == before, f"{what}: the zombie changed files: {set(before.items()) ^ set(after.items())}")
        code, text = self.end(second)
        if self.check(code == 0, f"{what}: the other ends with {code}: {text[-500:]}"):
            self.check("which has not renewed its lock for" in text, f"{what}: not taken over by time: {text[:500]}")
            self.goes_on(folder, text, places, steps, what)
            with open(os.path.join(folder, "out.log")) as file:
                self.check("was taken over" not in file.read(), f"{what}: the zombie wrote into out.log")
            if steps == STEPS:
                self.same_bits(folder, straight, what)
            else:
                self.nothing_left(folder, steps, what)
        self.count(f"woken {'while the other runs' if wakes_early else 'when the other has ended'}", seconds)

    def jobs(self, straight):
        folder = self.folder()
        first = self.start(folder, steps=4000)
        self.wait_for_records(folder, first)
        other = self.folder()
        for options in ([], ["--resume", "latest"], ["--resume", "auto"]):
            begin = time.monotonic()
            code, text = self.run(folder, *options)
            self.check(code == 73 and f"the run folder {folder} is in use by process {first.pid} " in text,
                       f"a second job {options} ends with {code}: {text[-300:]}")
            self.count("second job in a run folder", time.monotonic() - begin)
        begin = time.monotonic()
        code, text = self.run(other, "--checkpoint-dir", os.path.join(folder, "checkpoints"))
        self.check(code == 73 and f"the checkpoint folder {folder}/checkpoints is in use by process" in text,
                   f"a second job in the checkpoint folder ends with {code}: {text[-300:]}")
        self.check(not os.path.exists(other), "a refused start leaves a run folder")
        self.count("second job in a checkpoint folder", time.monotonic() - begin)
        first.send_signal(signal.SIGUSR1)
        code, text = self.end(first)
        self.check(code == 75, f"the first of two jobs ends with {code}: {text[-300:]}")
        steps = [r["step"] for r in self.records(folder) if r["kind"] == "step"]
        self.check(steps == list(range(1, len(steps) + 1)), f"records of two jobs are mixed: {steps}")
        folder = self.folder()
        begin = time.monotonic()
        codes = sorted((code for code, _ in [self.end(job) for job in [self.start(folder) for _ in range(4)]]), key=str)
        self.check(codes == [0, 73, 73, 73], f"four starts at once end with {codes}")
        self.same_bits(folder, straight, "four starts at once")
        self.count("four starts at once", time.monotonic() - begin)


def end_in_order(*_):
    """At a SIGTERM: what was started and made is put away, whatever comes meanwhile (timeout(1) sends two)."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit(143)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tier", choices=["default", "full", "all"], default="default")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", choices=["kills", "jobs", "zombies"])
    parser.add_argument("program")
    parser.add_argument("shim")
    chosen = parser.parse_args()
    begin = time.monotonic()
    signal.signal(signal.SIGTERM, end_in_order)
    with CheckedFolder() as work:
        campaign = Campaign(os.path.abspath(chosen.program), os.path.abspath(chosen.shim), work, chosen.seed)
        try:
            run_all(campaign, chosen, begin)
        finally:
            campaign.end_all()


def run_all(campaign, chosen, begin):
    straight, places = {}, {}
    for is_async in (False, True):
        straight[is_async], places[is_async] = campaign.places(is_async)
    campaign.can_tell_bits(straight[False])
    # Writes of values are alike: of each save's, the first and the last count.
    few = {}
    for is_async, calls in places.items():
        few[is_async] = [place for i, place in enumerate(calls) if place[0] != "write" or
                         i + 1 == len(calls) or calls[i - 1][0] != "write" or calls[i + 1][0] != "write"]
    kills = [(place, is_after, is_async) for is_async in (False, True) for place in few[is_async]
             for is_after in (False, True)]
    # At its end, when its locks are gone, a run tries to remove the folder, which is not empty.
    zombies = [(place, is_after, is_async, wakes_early) for place, is_after, is_async in kills
               if place[::2] != ("remove", "checkpoints") for wakes_early in (False, True)]
    zombies += [(0.002 * i, False, False, i % 2 == 0) for i in range(40)]
    print(f"{len(kills)} kill points, {len(zombies)} places of zombies", flush=True)
    if chosen.tier != "all":
        number = {"default": (4, 2), "full": (max(12, len(kills) // 10), max(20, len(zombies) // 10))}[chosen.tier]
        # The window between a checkpoint's first name and `latest` is always among them.
        window = [kill for kill in kills if kill[0][0] == "rename" and kill[1] and kill[0][1] == 1]
        kills = window + campaign.random.sample(kills, number[0] - len(window))
        zombies = campaign.random.sample(zombies, number[1])
    if chosen.only in (None, "jobs"):
        campaign.jobs(straight[False])
    if chosen.only in (None, "kills"):
        for place, is_after, is_async in kills:
            campaign.killed(place, is_after, is_async, straight[is_async])
    if chosen.only in (None, "zombies"):
        for place, is_after, is_async, wakes_early in zombies:
            campaign.zombie(place, is_after, is_async, wakes_early, straight[is_async])
    print(f"\n{'what':44} {'number':>6} {'longest, s':>10}")
    for row, (number, longest) in campaign.counts.items():
        print(f"{row:44} {number:6} {longest:10.2f}")
    print(f"{len(campaign.failures)} failures, seed {chosen.seed}, {time.monotonic() - begin:.0f} s")
    sys.exit(1 if campaign.failures else 0)


if __name__ == "__main__":
    main()
