#!/usr/bin/env python3
"""A campaign of hostile inputs: runs the program on each and judges what it does. Python's standard library alone.

  hostile_inputs.py VIT_HYBRID HOSTILE_HDF5 HOSTILE_CHECKPOINT [--count N | --all] [--seed S] [--only FAMILY[:I]]

An input must end with the exit code of its class (64, 65, 66, 73, 74, 75; 0 where it does no harm) and one message,
within 2 s and 1 GB of what the same command takes for a harmless input; its output has no raw control characters, no
message is longer than 4 KiB, and nothing is left behind or changed outside. What another program of the machine may
have caused (seconds, memory, remains of MPI) is run again, with a fresh measurement of the harmless command, and counts
only if it is so each time; all else counts at once. --list keeps each in a folder with run.sh. Where more programs run
than there are processors, the seconds are more in this proportion, but not those of a program that computes.
"""
import argparse
import collections
import concurrent.futures as futures
import functools
import multiprocessing
import os
import random
import re
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid

sys.dont_write_bytecode = True  # the tests leave nothing in the sources
import hostile_case
import hostile_families as families

SECONDS_BEYOND = 2.0
BYTES_BEYOND = 10**9
MESSAGE_BYTES = 4096
SECONDS_TO_END = 5.0
MOST_PATIENCE = 8.0
KILL_AFTER = 8.0  # beyond the harmless command's time
CODES = {64, 65, 66, 73, 74, 75}
DOUBTFUL = {"slow", "memory", "session", "segment"}  # may be another program's doing, or the machine's
ALL = 1000
CONTROL = re.compile(rb"[\x00-\x08\x0b-\x1f\x7f]|\xc2[\x80-\x9f]")

Outcome = collections.namedtuple("Outcome", "code seconds busy peak_bytes out err killed")
Harmless = collections.namedtuple("Harmless", "seconds busy peak_bytes")


class Tools:
    """The program under test, the two that make hostile files, and harmless files of every kind."""
    def __init__(self, args, folder):
        self.program, self.hdf5, self.checkpoint = map(os.path.realpath, (args.program, args.hdf5, args.checkpoint))
        self.folder = folder
        self.fixtures = os.path.join(folder, "good")
        self.spare = os.path.join(folder, "spare")
        self.kinds = collections.defaultdict(list)
        for line in subprocess.run([self.hdf5], capture_output=True, text=True, check=True).stdout.splitlines():
            group, kind = line.split()
            self.kinds[group].append(kind)
        self.baselines = {}
        os.makedirs(self.fixtures)
        hostile_case.make_fixtures(self)
        shutil.copytree(self.fixtures, self.spare, symlinks=True)
        self.fixture_stats = self.stat_fixtures()

    def restore_fixtures(self):
        """As they were, with their times: the other workers look at the same files."""
        shutil.rmtree(self.fixtures, ignore_errors=True)
        shutil.copytree(self.spare, self.fixtures, symlinks=True, dirs_exist_ok=True)

    def make(self, *words):
        """Runs the program to make a harmless file."""
        done = subprocess.run([self.program, *words],
                              cwd=self.fixtures,
                              env=environment(self.folder, {}),
                              capture_output=True,
                              check=False)
        if done.returncode != 0:
            sys.exit(f"the harmless command {shlex.join(words)} failed:\n{done.stderr.decode(errors='replace')}")
        return done.stdout.decode()

    @functools.cache
    def options(self, command):
        """Names of the command's options that take a value."""
        return sorted(set(re.findall(r"^  --(?!\[no-\])([a-z0-9-]+) <", self.make(*command.split(), "--help"), re.M)))

    def stat_fixtures(self):
        stats = {}
        for parent, _, names in os.walk(self.fixtures):
            for name in names:
                try:
                    status = os.lstat(os.path.join(parent, name))
                except FileNotFoundError:  # another worker restores them
                    continue
                stats[os.path.join(parent, name)] = (status.st_size, status.st_mtime_ns)
        return stats


def environment(folder, more):
    """Of a child: little, and its temporary files, home and cache in the folder."""
    own = {
        b"PATH": os.fsencode(os.environ.get("PATH", "/usr/bin:/bin")), b"OMP_NUM_THREADS": b"1",
        b"MKL_NUM_THREADS": b"1", b"TMPDIR": os.fsencode(folder + "/tmp"), b"HOME": os.fsencode(folder + "/tmp"),
        b"XDG_CACHE_HOME": os.fsencode(folder + "/cache")  # what is kept there on purpose is no remains
    }
    for name, value in os.environb.items():
        if name.startswith((b"OMPI_", b"MPIR_", b"LD_", b"ASAN_", b"UBSAN_")):
            own[name] = value
    own.update({os.fsencode(name): os.fsencode(value) for name, value in more.items()})
    os.makedirs(folder + "/tmp", exist_ok=True)
    return own


def patience():
    """How many times longer things take where more programs run than there are processors."""
    return min(max(1.0, os.getloadavg()[0] / len(os.sched_getaffinity(0))), MOST_PATIENCE)


def most_resident_bytes(pid):
    try:
        with open(f"/proc/{pid}/status") as file:
            return int(re.search(r"^VmHWM:\s*(\d+) kB", file.read(), re.M)[1]) * 1024
    except (OSError, TypeError):
        return 0


def run_child(argv, cwd, env, limit_seconds, limit_bytes):
    """Runs a command to its end, or to one of the limits, and measures it."""
    with open(os.path.join(cwd, ".out"), "wb+") as out, open(os.path.join(cwd, ".err"), "wb+") as err:
        own_peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        begin = time.monotonic()
        child = subprocess.Popen(argv,
                                 cwd=cwd,
                                 env=env,
                                 stdin=subprocess.DEVNULL,
                                 stdout=out,
                                 stderr=err,
                                 start_new_session=True)
        killed, pause, peak = "", 0.002, 0
        while True:
            pid, status, usage = os.wait4(child.pid, os.WNOHANG)
            if pid != 0:
                break
            seconds = time.monotonic() - begin
            peak = max(peak, most_resident_bytes(child.pid))
            if not killed and seconds > limit_seconds:
                killed = "slow"
            elif not killed and peak > limit_bytes:
                killed = "memory"
            if killed:
                os.kill(child.pid, signal.SIGKILL)
            time.sleep(pause)
            pause = min(pause * 1.5, 0.02)
        seconds = time.monotonic() - begin
        child.returncode = os.waitstatus_to_exitcode(status)
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read(64 << 20))
    for name in (".out", ".err"):
        os.unlink(os.path.join(cwd, name))
    # A child's figure begins with its parent's, which may have made an input of some 100 MB: then what was seen counts.
    exact_peak = usage.ru_maxrss * 1024
    peak = exact_peak if exact_peak > own_peak else min(peak, exact_peak)
    return Outcome(child.returncode, seconds, usage.ru_utime + usage.ru_stime, peak, *texts, killed)


def processes_with(mark):
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/environ", "rb") as file:
                    if mark in file.read():
                        found.append(int(name))
            except OSError:
                pass
    return found


class Trial:
    """One run of one input in a folder of its own."""
    def __init__(self, tools, number, family, index, seed):
        self.tools, self.name = tools, f"{family}:{index}"
        self.folder = os.path.join(tools.folder, f"case{number}")
        shutil.rmtree(self.folder, ignore_errors=True)
        self.case = hostile_case.Case(tools, self.folder, random.Random(f"{seed}/{family}/{index}"),
                                      random.Random(f"{seed}/{family}"), index)
        self.input = families.FAMILIES[family](self.case)
        self.mark = uuid.uuid4().hex.encode()

    def measure_harmless(self):
        name = self.input.command
        folder = self.folder + "-harmless"
        shutil.rmtree(folder, ignore_errors=True)
        case = hostile_case.Case(self.tools, folder, random.Random(0), random.Random(0), 0)
        argv = [self.tools.program, *case.words(name)]
        outcome = run_child(argv, case.cwd, environment(folder, {}), 120, 8 << 30)
        shutil.rmtree(folder, ignore_errors=True)
        if outcome.code != 0:
            sys.exit(f"the harmless command {shlex.join(argv)} fails:\n{outcome.err.decode(errors='replace')}")
        measured = Harmless(outcome.seconds, outcome.busy, outcome.peak_bytes)
        # One that was measured in a busy moment must not allow more to all that come after it.
        known = self.tools.baselines.get(name, measured)
        self.tools.baselines[name] = Harmless(*map(min, measured, known))
        return measured

    def run(self, exact):
        """Violations as (kind, what), and the outcome. `exact`: measures the harmless command anew."""
        harmless = None if exact else self.tools.baselines.get(self.input.command)
        harmless = harmless or self.measure_harmless()
        env = environment(self.folder, {**self.input.env, "HOSTILE_INPUT": self.mark})
        argv = [self.tools.program, *self.input.words]
        before = self.case.snapshot()
        memory_before = set(os.listdir("/dev/shm")) if os.path.isdir("/dev/shm") else set()
        outcome = run_child(argv, self.case.cwd, env, harmless.seconds + KILL_AFTER * patience(),
                            harmless.peak_bytes + 2 * BYTES_BEYOND)
        found = list(self.judge_limits(outcome, harmless))
        found += self.judge_code(outcome)
        found += self.judge_texts(outcome)
        found += self.judge_rest(outcome, before, memory_before)
        return found, outcome

    def judge_limits(self, outcome, harmless):
        beyond = outcome.seconds - harmless.seconds
        # Others may take its turns on the processors, but do not make it compute.
        computes = min(beyond, outcome.busy - harmless.busy) > SECONDS_BEYOND
        if outcome.killed == "slow" or beyond > SECONDS_BEYOND * patience() or computes:
            end = ", killed" if outcome.killed == "slow" else ""
            yield "slow", (f"{outcome.seconds:.1f} s{end}, computed {outcome.busy:.1f} s, "
                           f"harmless {harmless.seconds:.1f} s")
        if outcome.killed == "memory" or outcome.peak_bytes - harmless.peak_bytes > BYTES_BEYOND:
            end = ", killed" if outcome.killed == "memory" else ""
            yield "memory", f"{outcome.peak_bytes / 1e9:.2f} GB{end}, harmless {harmless.peak_bytes / 1e9:.2f} GB"

    def judge_code(self, outcome):
        if outcome.killed:
            return
        if outcome.code < 0:
            yield "crash", f"signal {signal.Signals(-outcome.code).name}"
        elif outcome.code == 0 and self.input.must_refuse:
            yield "accepted", "exit code 0 for what must be refused"
        elif outcome.code == 1 and self.input.command == "diff":
            return
        elif outcome.code != 0 and outcome.code not in (self.input.codes or CODES):
            yield "code", f"exit code {outcome.code}, allowed {sorted(self.input.codes or CODES)}"

    def judge_texts(self, outcome):
        control = CONTROL.search(outcome.out + b"\n" + outcome.err)
        if control:
            yield "control", f"raw {control.group()!r} in the output"
        lines = outcome.err.removesuffix(b"\n").split(b"\n") if outcome.err else []
        messages = [line for line in lines if re.match(rb"vit_hybrid: (?!warning: )", line)]
        strangers = [line for line in lines if not re.match(rb"vit_hybrid: |  ", line)]
        if outcome.code == 75:  # a run that was stopped has not failed
            messages += [line for line in lines if line.startswith(b"vit_hybrid: warning: stopped by ")]
        wanted = 1 if outcome.code > 1 else 0
        if outcome.code >= 0 and len(messages) != wanted:
            yield "messages", f"{len(messages)} messages, exit code {outcome.code}"
        if strangers and outcome.code >= 0:
            yield "messages", f"a line that is no message: {strangers[0][:80]!r}"
        if len(outcome.err) > MESSAGE_BYTES:
            yield "long", f"{len(outcome.err)} bytes of messages"

    def judge_rest(self, outcome, before, memory_before):
        for pid in self.processes_left():
            if not outcome.killed:  # else what was killed could not end it
                yield "left", f"a process: {pid}"
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        if not outcome.killed and outcome.code >= 0:
            for path in self.case.left_behind(before, outcome.code != 0 and self.input.command != "forecast"):
                yield ("session" if "/ompi" in path else "left"), f"a file: {path}"
            for name in self.shared_memory_left(memory_before):
                yield "segment", f"a segment: /dev/shm/{name}"
        for path in self.case.damaged(before):
            yield "canary", f"changed: {path}"
        stats = self.tools.stat_fixtures()
        if stats != self.tools.fixture_stats:
            changed = {path for path, _ in set(stats.items()) ^ set(self.tools.fixture_stats.items())}
            yield "canary", f"changed among the harmless files: {sorted(changed)[:3]}"
            self.tools.restore_fixtures()

    def processes_left(self):
        """What the program started and outlives it: MPI's daemon of a single process needs a moment to see its end."""
        deadline = time.monotonic() + SECONDS_TO_END
        while (pids := processes_with(b"HOSTILE_INPUT=" + self.mark)) and time.monotonic() < deadline:
            time.sleep(0.02)
        return pids

    def shared_memory_left(self, before):
        """Segments that came meanwhile and that no living process has: other programs of the machine have theirs."""
        new = set(os.listdir("/dev/shm")) - before if os.path.isdir("/dev/shm") else set()
        if new:
            time.sleep(0.5)
            in_use = ""
            for name in os.listdir("/proc"):
                if name.isdigit():
                    try:
                        with open(f"/proc/{name}/maps") as file:
                            in_use += file.read()
                    except OSError:
                        pass
            new = {name for name in new if os.path.exists("/dev/shm/" + name) and "/dev/shm/" + name not in in_use}
        return new

    def keep(self, folder, found, outcome):
        """Makes the input anew, with what runs it."""
        where = os.path.join(folder, self.name.replace(":", "-"))
        os.makedirs(where, exist_ok=True)
        words = [self.tools.program, *self.input.words]
        with open(os.path.join(where, "run.sh"), "wb") as file:
            file.write(b"#!/usr/bin/env bash\n# Runs the input anew; `hostile_inputs.py ... --only %s` makes it.\n" %
                       self.name.encode())
            file.write(b"cd " + shlex.quote(self.case.cwd).encode() + b"\n")
            for name, value in self.input.env.items():
                file.write(b"export " + os.fsencode(name) + b"=" + quoted(value) + b"\n")
            file.write(b" ".join(quoted(word) for word in words) + b"\n")
        with open(os.path.join(where, "what"), "wb") as file:
            file.write("\n".join(f"{kind}: {what}" for kind, what in found).encode() + b"\n" + self.input.note.encode())
            file.write(b"\n--- standard error\n" + outcome.err[:20000])
        return where

    def remove(self):
        shutil.rmtree(self.folder, ignore_errors=True)


def quoted(word):
    return b"'" + os.fsencode(word).replace(b"'", b"'\\''") + b"'"


def judged(tools, args, number, family, index):
    """Runs an input; the code of its last run, the rules that it breaks, and a text that tells of it."""
    kinds = set(KINDS)
    for attempt in range(3):
        trial = Trial(tools, number, family, index, args.seed)
        found, outcome = trial.run(exact=attempt > 0)
        found = [(kind, what) for kind, what in found
                 if kind not in args.ignore.split(",") and (kind in kinds or kind not in DOUBTFUL)]
        kinds = {kind for kind, _ in found}
        if kinds - DOUBTFUL or not kinds:
            break
    text = ""
    if found:
        words = " ".join(os.fsdecode(word)[:60] for word in trial.input.words)
        text = (f"FAILED {trial.name}: " + "; ".join(f"{kind}: {what}" for kind, what in found) +
                f"\n    {trial.input.note} | {words[:300]!r}\n    {outcome.err[:240]!r}")
        if args.list:
            text += "\n    kept: " + trial.keep(args.list, found, outcome)
    if not (found and args.list):
        trial.remove()
    return outcome.code, kinds, text


def chosen(args):
    """Pairs (family, index): by turns from all families, in the order of WHEEL."""
    if args.only:
        family, _, index = args.only.partition(":")
        return [(family, int(index))] if index else [(family, i) for i in range(args.count)]
    count = ALL if args.all else args.count
    seen = collections.Counter()
    pairs = []
    for number in range(count):
        family = families.WHEEL[number % len(families.WHEEL)]
        pairs.append((family, seen[family]))
        seen[family] += 1
    return pairs


KINDS = [
    "slow", "memory", "crash", "messages", "long", "code", "accepted", "control", "canary", "left", "session", "segment"
]


def print_table(rows):
    names = ["inputs", "refused", "harmless", *KINDS]
    print(f"{'family':<20}" + "".join(f"{name:>9}" for name in names))
    total = collections.Counter()
    for family, row in [*sorted(rows.items()), ("all", total)]:
        print(f"{family:<20}" + "".join(f"{row[name] or '.':>9}" for name in names))
        total.update(row)


def end_in_order(*_):
    """At a SIGTERM: what was started and made is put away, whatever comes meanwhile (timeout(1) sends two)."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit(143)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("program", "hdf5", "checkpoint"):
        parser.add_argument(name)
    parser.add_argument("--count", type=int, default=25)
    parser.add_argument("--all", action="store_true", help=f"{ALL} inputs")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", help="FAMILY, --count inputs of it, or FAMILY:I, one")
    parser.add_argument("--list", help="folder that keeps each input that was not refused as it should be")
    parser.add_argument("--jobs", type=int, default=1, help="inputs that run at once")
    parser.add_argument("--ignore",
                        default="",
                        help="rules that are not looked at, with commas between them: " + ", ".join(KINDS))
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, end_in_order)
    if args.list:
        os.makedirs(args.list, exist_ok=True)
    folder = tempfile.mkdtemp(prefix="vh", dir=args.list and os.path.realpath(args.list))
    try:
        return campaign(args, folder)
    finally:
        if not args.list:  # else the folder holds the inputs that --list keeps
            shutil.rmtree(folder, ignore_errors=True)


def campaign(args, folder):
    begin = time.monotonic()
    tools = Tools(args, folder)
    rows = collections.defaultdict(collections.Counter)
    num_broken = 0
    pairs = chosen(args)
    with futures.ProcessPoolExecutor(args.jobs, multiprocessing.get_context("fork")) as pool:
        results = [pool.submit(judged, tools, args, number, *pair) for number, pair in enumerate(pairs)]
        try:
            for (family, _), result in zip(pairs, results):
                code, kinds, text = result.result()
                rows[family]["inputs"] += 1
                rows[family].update(kinds)
                num_broken += 1 if kinds else 0
                if kinds:
                    print(text, flush=True)
                else:
                    rows[family]["harmless" if code in (0, 1) else "refused"] += 1
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    print_table(rows)
    print(f"seed {args.seed}: {sum(row['inputs'] for row in rows.values())} hostile inputs in "
          f"{time.monotonic() - begin:.0f} s, {num_broken} not refused as they should be")
    return 1 if num_broken else 0


if __name__ == "__main__":
    sys.exit(main())
