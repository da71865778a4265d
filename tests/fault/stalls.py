#!/usr/bin/env python3
# Stops one rank of a job, at a random moment of a random command in a random layout, and looks at what the job says: by
# SIGSTOP, by a signal whose handler sleeps, loops or blocks in a read on the main thread (tests/support/stalling_signals.c),
# or by leaving a collective out (layout_run). Prints a table: told, the right rank, seconds over the limit. Clean runs, in
# which a rank works alone for three limits among others, must say nothing.
#
#   stalls.py PROGRAM LAYOUT_RUN SHIM WORK [--count N] [--clean N] [--seed S] [--limit SECONDS] [--nodes one|two|both] -- MPIRUN...
import argparse
import collections
import ctypes
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import threading
import time

LAYOUTS = [(2, 1, 1), (1, 2, 1), (1, 1, 2), (3, 1, 1), (1, 3, 1), (1, 1, 3), (4, 1, 1), (2, 2, 1), (2, 1, 2), (1, 2, 2),
           (1, 1, 4), (1, 4, 1), (3, 2, 1), (1, 2, 3), (2, 2, 2), (8, 1, 1), (1, 2, 4), (3, 3, 1), (3, 2, 2), (4, 2, 2)]
TRAIN = "--steps 12 --generated-samples 48 --depth 4 --embed-dim 48 --num-heads 4 --checkpoint-every 4 --threads 1".split()
COMMANDS = {"train": 8, "evaluate": 2, "data generate": 2, "data stats": 1, "layout": 3}  # and how often
LAYOUT_STEPS = 300
HANDLERS = {"sleep": 3, "loop": 4, "read": 5}
SYS_TGKILL = 234
PATIENCE = 14.0  # beyond the limit: then it is a silent hang
LONGEST_START = 60.0
LONGEST_RUN = 300.0
SECONDS_TO_END = 5.0  # for daemons of the launcher
SECONDS_ALONE = 3.0  # with the victim, of a job whose other ranks have ended: a launcher ends a job that fails in less
LONGEST_GAP = 1.0  # of a thread that sleeps for 20 ms
LIBC = ctypes.CDLL(None, use_errno=True)


class Pulse:
    """A thread that looks whether this machine runs what is ready to run. Linux 6.18 was seen to keep all processes but some
    waiting for five seconds where many of them call sched_yield() in a loop, as MPI does. Then a whole node of the job
    stands still, nothing in it is wrong, and nobody could tell: such a job says nothing of the program."""

    def __init__(self):
        self.gaps = []  # when one ended, and its seconds
        threading.Thread(target=self.beat, daemon=True).start()

    def beat(self):
        last = time.monotonic()
        while True:
            time.sleep(0.02)
            now = time.monotonic()
            if now - last > LONGEST_GAP:
                self.gaps.append((now, now - last))
            last = now

    def stood_still(self, since):
        return any(at > since for at, _ in self.gaps)


def environ_of(pid):
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return dict(e.split("=", 1) for e in file.read().decode(errors="replace").split("\0") if "=" in e)
    except OSError:
        return {}


def end(pid):
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


class Job:
    """One mpirun, whose processes are found by a word in their environment."""

    number = 0

    def __init__(self, campaign, ranks, command, two_nodes, preload=False, names=()):
        Job.number += 1
        self.tag = f"{os.getpid()}-{Job.number}"
        self.ranks = ranks
        self.all_came = False  # all processes were there at one time
        env = dict(os.environ, VIT_HYBRID_TIMEOUT=str(campaign.limit), STALL_TAG=self.tag)
        names = ["VIT_HYBRID_TIMEOUT", "STALL_TAG", *names]
        if preload:
            env["STALL_SHIM"] = campaign.shim
            command = ["env", f"LD_PRELOAD={campaign.shim}"] + command
        launcher = campaign.nodes.launcher(ranks, names) if two_nodes else campaign.mpirun + [str(ranks)]
        self.lines = []
        self.start = time.monotonic()
        self.process = subprocess.Popen(launcher + command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env,
                                        cwd=campaign.work, text=True, errors="replace", start_new_session=True)
        self.output = []
        self.readers = [threading.Thread(target=self.read, args=(self.process.stderr, self.lines)),
                        threading.Thread(target=self.read, args=(self.process.stdout, self.output))]
        for reader in self.readers:
            reader.start()

    @staticmethod
    def read(stream, to):
        for line in stream:
            to.append((time.monotonic(), line.rstrip()))

    def messages(self):
        return [(at, line) for at, line in self.lines
                if line.startswith("vit_hybrid: ") and not line.startswith("vit_hybrid: warning: ")]

    def processes(self):
        """pid by rank."""
        found = {}
        for name in os.listdir("/proc"):
            if not name.isdigit():
                continue
            env = environ_of(name)
            rank = env.get("OMPI_COMM_WORLD_RANK", env.get("PMI_RANK"))
            if env.get("STALL_TAG") != self.tag or rank is None:
                continue
            try:  # not what starts it
                with open(f"/proc/{name}/comm") as file:
                    if file.read().strip() in ("vit_hybrid", "layout_run"):
                        found[int(rank)] = int(name)
            except OSError:
                pass
        return found

    def wait_for_rank(self, rank):
        while self.process.poll() is None and time.monotonic() - self.start < LONGEST_START:
            pid = self.processes().get(rank)
            if pid is not None:
                return pid
            time.sleep(0.005)
        return None

    def ended(self):
        return self.process.poll() is not None

    def all_processes(self):
        """Launchers and their daemons too."""
        return [int(name) for name in os.listdir("/proc") if name.isdigit() and
                environ_of(name).get("STALL_TAG") == self.tag]

    def end_all(self):
        for pid in self.all_processes():
            end(pid)

    def finish(self):
        """Ends what is left; returns the ranks that were, and what the launcher has left."""
        has_ended = self.ended()
        until = time.monotonic() + SECONDS_TO_END
        while has_ended and self.all_processes() and time.monotonic() < until:
            time.sleep(0.05)
        ranks = self.processes()
        left = sorted(ranks)
        if has_ended:
            left += [f"process {pid}" for pid in self.all_processes() if pid not in ranks.values()]
            self.end_all()
        for pid in ranks.values():
            end(pid)
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.end_all()  # what still had the readers' pipes would keep them waiting
        for reader in self.readers:
            reader.join()
        return left

    def problem(self):
        """What is wrong with a job that nobody disturbed, after finish()."""
        if self.process.returncode != 0 or self.messages():
            return f"code {self.process.returncode} {[line for _, line in self.messages()]}"
        return ""


class Nodes:
    """Two nodes: network namespaces with host names of their own, as in tests/cluster/two_nodes.sh."""

    def __init__(self, work):
        self.tag = f"vs{os.getpid() % 10000}"
        self.subnet = f"10.{64 + os.getpid() % 64}.{random.randrange(256)}"
        self.names = [self.tag + "a", self.tag + "b"]
        self.agent = os.path.join(work, "agent")
        with open(self.agent, "w") as file:
            file.write('#!/usr/bin/env bash\nnode=$1\nshift\n'
                       'exec ip netns exec "$node" unshare --uts sh -c "hostname $node; $*"\n')
        os.chmod(self.agent, 0o755)
        ip = lambda *words: subprocess.run(["ip", *words], check=True, capture_output=True)
        ip("link", "add", self.tag + "br", "type", "bridge")
        ip("addr", "add", f"{self.subnet}.254/24", "dev", self.tag + "br")
        ip("link", "set", self.tag + "br", "up")
        for i, node in enumerate(self.names, 1):
            veth = f"{self.tag}v{i}"
            ip("netns", "add", node)
            ip("link", "add", veth, "type", "veth", "peer", "name", "eth0", "netns", node)
            ip("link", "set", veth, "master", self.tag + "br", "up")
            ip("-n", node, "link", "set", "lo", "up")
            ip("-n", node, "addr", "add", f"{self.subnet}.{i}/24", "dev", "eth0")
            ip("-n", node, "link", "set", "eth0", "up")
            os.makedirs(f"/etc/netns/{node}", exist_ok=True)
            with open(f"/etc/netns/{node}/hosts", "w") as file:
                file.write(f"127.0.0.1 localhost\n{self.subnet}.1 {self.names[0]}\n{self.subnet}.2 {self.names[1]}\n"
                           f"{self.subnet}.254 {os.uname().nodename}\n")

    def launcher(self, ranks, names):
        first = (ranks + 1) // 2
        net = f"{self.subnet}.0/24"
        words = ["mpirun", "-q", "--host", f"{self.names[0]}:{first},{self.names[1]}:{ranks - first}", "--oversubscribe",
                 "--bind-to", "none", "-n", str(ranks), "--mca", "plm_rsh_agent", self.agent, "--mca",
                 "plm_rsh_no_tree_spawn", "1", "--mca", "oob_tcp_if_include", net, "--mca", "btl_tcp_if_include", net,
                 "--mca", "btl", "self,vader,tcp"]
        for name in names + ["OMP_NUM_THREADS", "MKL_NUM_THREADS", "OMPI_MCA_mpi_yield_when_idle"]:
            if name in names or name in os.environ:
                words += ["-x", name]
        return words

    def close(self):
        for node in self.names:
            subprocess.run(["ip", "netns", "del", node], capture_output=True)
            shutil.rmtree(f"/etc/netns/{node}", ignore_errors=True)
        subprocess.run(["ip", "link", "del", self.tag + "br"], capture_output=True)


def end_all():
    """Whatever this campaign has started and is still there, launchers too."""
    for name in os.listdir("/proc"):
        if name.isdigit() and environ_of(name).get("STALL_TAG", "").startswith(f"{os.getpid()}-"):
            end(int(name))


class Result(collections.namedtuple("Result",
                                    "nodes what how ranks victim told right over leftovers code lines line phase")):
    def is_even(self):
        """Of two ranks one skips, or the other makes one more: nobody else tells which, so the line names both."""
        named = set(re.findall(r"rank (\d+) on \S+ \(process \d+\) has waited ", self.line))
        return bool(self.told and not self.right and self.how.startswith("skip") and self.ranks.count(1) == 2 and
                    sum(self.ranks) == 4 and named == {"0", "1"})

    def has_right_code(self):
        """That of a failed communication; of operations that do not fit where two were compared."""
        return self.code == 74 or (self.code == 70 and self.how.startswith("skip"))

    def is_early(self):
        """Before MPI_Init has ended nodes cannot ask each other: each may say what it sees."""
        return self.lines == 2 and "cannot be asked before MPI_Init has ended" in self.line


class Campaign:
    def __init__(self, options):
        self.program, self.layout_run, self.shim = (os.path.realpath(p) for p in
                                                     (options.program, options.layout_run, options.shim))
        self.work = os.path.realpath(options.work)
        shutil.rmtree(self.work, ignore_errors=True)
        os.makedirs(self.work)
        self.limit = options.limit
        self.mpirun = options.mpirun
        self.random = random.Random(options.seed)
        self.commands = {name: count for name, count in COMMANDS.items()
                         if not options.commands or name in options.commands.split(",")}
        self.durations = {}
        self.pulse = Pulse()
        self.num_clean = 0
        self.frozen = 0  # jobs in which the machine stood still: they do not count, whatever they did
        self.dirty = 0  # jobs that nobody disturbed, and that did not end well
        self.nodes = None
        self.checkpoint = None

    def command(self, what, layout, run):
        dp, tp, pp = layout
        degrees = ["--dp", str(dp), "--tp", str(tp), "--pp", str(pp)]
        if what == "train":
            return [self.program, *TRAIN, *degrees, "--run-dir", f"run{run}"]
        if what == "evaluate":
            return [self.program, "evaluate", "--checkpoint", self.checkpoint, "--data", "data/valid", *degrees,
                    "--timeout", str(self.limit)]
        if what == "data generate":
            return [self.program, "data", "generate", "--out", f"data{run}", "--train-years", "6", "--valid-years", "1",
                    "--steps-per-year", "60", "--channels", "5", "--height", "24", "--width", "48"]
        if what == "data stats":
            return [self.program, "data", "stats", "data/train", "--out", f"stats{run}"]
        return [self.layout_run, *(str(n) for n in layout), str(LAYOUT_STEPS)]

    def prepare(self):
        """Data and a checkpoint for the commands that need them."""
        if list(self.commands) == ["layout"]:
            return
        for command in ([self.program, "data", "generate", "--out", "data", "--train-years", "4", "--valid-years", "1",
                         "--steps-per-year", "40", "--channels", "5", "--height", "32", "--width", "64"],
                        [self.program, "--train-data", "data/train", "--valid-data", "data/valid", "--stats", "data/stats",
                         "--in-channels", "5", "--out-channels", "5", "--image-size", "32x64", "--depth", "4", "--embed-dim", "48", "--num-heads", "4", "--steps", "2", "--run-dir", "trained"]):
            done = subprocess.run(command, cwd=self.work, capture_output=True, text=True, timeout=120)
            if done.returncode != 0:
                sys.exit(f"stalls: {' '.join(command)} failed:\n{done.stderr}")
        self.checkpoint = "trained/checkpoints"

    def is_clean(self, job, what):
        """Whether an undisturbed job ended well, as it must; ends what is left of it."""
        is_silent = not job.ended()
        left = job.finish()
        problem = "it does not end" if is_silent else job.problem() or (f"left {left}" if left else "")
        if self.is_frozen(job, problem):
            return False
        if problem:
            self.dirty += 1
            print(f"  NOT CLEAN: {what}: {problem}", flush=True)
        return not problem

    def is_frozen(self, job, what):
        stood_still = self.pulse.stood_still(job.start)
        if stood_still:
            self.frozen += 1
            print(f"  not counted, the machine stood still for {self.pulse.gaps[-1][1]:.1f} s: {what[:100]}", flush=True)
        return stood_still

    def wait(self, job):
        try:
            job.process.wait(LONGEST_RUN)
        except subprocess.TimeoutExpired:
            pass

    def duration(self, what, layout, two_nodes):
        key = (what, layout, two_nodes)
        if key not in self.durations:
            ranks = layout[0] * layout[1] * layout[2]
            job = Job(self, ranks, self.command(what, layout, f"-clean-{Job.number}"), two_nodes)
            job.wait_for_rank(0)
            begin = time.monotonic()
            self.wait(job)
            seconds = max(0.2, time.monotonic() - begin)
            if not self.is_clean(job, f"{what} in {layout}"):
                return None
            self.durations[key] = seconds
        return self.durations[key]

    def trial(self, two_nodes):
        r = self.random
        what = r.choices(list(self.commands), list(self.commands.values()))[0]
        how = r.choices(["stop", "sleep", "loop", "read", "skip"], [50, 16, 14, 12, 8])[0]
        layout = r.choice([l for l in LAYOUTS if not two_nodes or l[0] * l[1] * l[2] >= 2])
        ranks = layout[0] * layout[1] * layout[2]
        victim = r.randrange(ranks)
        if how == "skip":
            return self.skip(layout, ranks, victim, two_nodes)
        duration = self.duration(what, layout, two_nodes)
        if duration is None:
            return None
        delay = r.uniform(0.0, duration)
        job = Job(self, ranks, self.command(what, layout, f"-{Job.number}"), two_nodes, preload=how != "stop")
        pid = job.wait_for_rank(victim)
        if pid is None:
            self.is_clean(job, f"{what} in {layout}, whose rank {victim} did not come")
            return None
        until = time.monotonic() + delay
        while (left := until - time.monotonic()) > 0:
            job.all_came = job.all_came or len(job.processes()) == ranks
            time.sleep(min(left, 0.1))
        if job.ended() or job.messages():
            self.wait(job)
            self.is_clean(job, f"{what} in {layout}, before a stop")
            return None
        begin = time.monotonic()
        if how == "stop":
            try:
                os.kill(pid, signal.SIGSTOP)
            except ProcessLookupError:
                pid = None
        elif LIBC.syscall(SYS_TGKILL, pid, pid, signal.SIGRTMIN + HANDLERS[how]) != 0:
            pid = None
        if pid is None:  # it has just come to its end
            self.wait(job)
            self.is_clean(job, f"{what} in {layout}, before a stop")
            return None
        return self.watch(job, begin, "two" if two_nodes else "one", what, how, layout, victim)

    def skip(self, layout, ranks, victim, two_nodes):
        places = [place for place, size in (("tensor", layout[1]), ("data", layout[0]), ("border", ranks),
                                            ("agreement", ranks)) if size > 1]
        place = self.random.choice(places)
        step = self.random.randrange(2, LAYOUT_STEPS - 1)
        command = self.command("layout", layout, "") + ["skip", str(victim), str(step), place]
        job = Job(self, ranks, command, two_nodes)
        job.wait_for_rank(victim)
        return self.watch(job, None, "two" if two_nodes else "one", "layout", f"skip {place}", layout, victim)

    def watch(self, job, begin, nodes, what, how, layout, victim):
        alone_since = None
        while not job.ended():
            # Where it skips, it says so itself, on its output.
            begin = begin or next((at for at, line in job.output if line == "skips"), None)
            now = time.monotonic()
            if now > (begin + self.limit + PATIENCE if begin else job.start + LONGEST_RUN):
                break
            time.sleep(0.05)
            running = set(job.processes())
            job.all_came = job.all_came or len(running) == job.ranks
            # All others have come to their end, and the launcher finds nothing wrong with it: nobody waits.
            is_alone = job.all_came and not job.messages() and running == {victim}
            alone_since = (alone_since or now) if is_alone else None
            if alone_since and now - alone_since > SECONDS_ALONE:
                break
        is_late = alone_since is not None and not job.ended()
        left = job.finish()
        begin = begin or next((at for at, line in job.output if line == "skips"), None)
        messages = job.messages()
        if self.is_frozen(job, messages[0][1] if messages else how):
            return None
        if job.process.returncode in [128 + signal.SIGRTMIN + number for number in HANDLERS.values()]:
            return None  # so early that it could not stall yet: the signal has ended it
        if is_late or (not messages and job.process.returncode == 0 and not left):
            return Result(nodes, what, how, layout, victim, None, None, None, [], 0, 0, "", "after the end")
        line = messages[0][1] if messages else ""
        over = messages[0][0] - begin - self.limit if messages and begin else None
        waited = re.search(r"it has not come to its start; .*, rank \d+ for ([\d.]+) s in MPI_Init", line)
        if over is not None and waited is not None:
            over = min(over, float(waited[1]) - self.limit)  # before, others were loading their libraries: nobody waited
        head = re.match(r"vit_hybrid: rank (\d+) on \S+ (?:\(process \d+\) )?(has not moved|has waited|has not come)", line)
        named = re.findall(r"rank (\d+) on \S+ (?:\(process \d+\) )?has ", line)
        blames = head is not None and "none of those that are known has stopped" not in line
        right = blames and int(head[1]) == victim and len(named) == 1
        # Before MPI_Init has ended nodes cannot ask each other: they name the ranks of which they know nothing.
        right = right or re.search(rf"; rank {victim}, on another node, cannot be asked before", line) is not None
        # Or two operations that do not fit were compared.
        is_compared = (how.startswith("skip") and
                       re.search(r"\brank \d+ (is in .* while rank \d+ is in |sent .* received)", line) is not None)
        right = right or (is_compared and re.search(rf"\brank {victim} (is in|sent) ", line) is not None)
        told = is_compared or "; the limit is " in line or "the watchdog itself has not moved" in line
        phase = re.search(r"in (step \d+, )?([a-z][a-z ]+), ", line)
        return Result(nodes, what, how, layout, victim, told, right, over, left, job.process.returncode,
                      len(messages), " AND ".join(text for _, text in messages), phase[2] if phase else "")

    def clean(self, number):
        r = self.random
        layout = r.choice(LAYOUTS)
        ranks = layout[0] * layout[1] * layout[2]
        if number % 3 == 0:
            command = self.command("layout", layout, "") + ["lonely", str(r.randrange(ranks)), "5", str(3 * self.limit)]
        else:
            command = self.command(r.choice(list(self.commands)), layout, f"-{Job.number}")
        job = Job(self, ranks, command, self.nodes is not None and number % 2 == 0)
        self.wait(job)
        frozen = self.frozen
        self.is_clean(job, f"{layout} {' '.join(command[1:])}")
        self.num_clean += self.frozen == frozen


def table(results):
    counted = [r for r in results if r.told is not None]
    print(f"\n{'nodes':6}{'command':15}{'how':10}{'stops':>6}{'told':>6}{'right':>6}{'one line':>9}{'code':>8}"
          f"{'over, most':>11}{'mean':>7}")
    groups = collections.defaultdict(list)
    for r in counted:
        groups[(r.nodes, r.what, r.how.split()[0])].append(r)
    rows = sorted(groups.items()) + [(("all", "", ""), counted)]
    for (nodes, what, how), some in rows:
        over = [r.over for r in some if r.over is not None]
        print(f"{nodes:6}{what:15}{how:10}{len(some):6}{sum(r.told for r in some):6}{sum(bool(r.right) for r in some):6}"
              f"{sum(r.lines == 1 for r in some):9}{sum(r.has_right_code() for r in some):8}"
              f"{max(over, default=0):11.2f}{sum(over) / max(len(over), 1):7.2f}")
    late = len(results) - len(counted)
    if late:
        print(f"{late} more came after the end of the rank's work, when nobody waited any more: not counted")


def end_in_order(*_):
    """At a SIGTERM: what was started and made is put away, whatever comes meanwhile (timeout(1) sends two)."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit(143)


def main():
    words = sys.argv[1:]
    cut = words.index("--") if "--" in words else len(words)
    parser = argparse.ArgumentParser()
    for name in ("program", "layout_run", "shim", "work"):
        parser.add_argument(name)
    parser.add_argument("--count", type=int, default=8)
    parser.add_argument("--clean", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--limit", type=float, default=3.0)
    parser.add_argument("--commands", default="", help="with commas between them; all by default")
    parser.add_argument("--nodes", choices=["one", "two", "both"], default="one")
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args(words[:cut])
    options.mpirun = words[cut + 1:] or ["mpirun", "-q", "--oversubscribe", "--bind-to", "none", "-n"]
    campaign = Campaign(options)
    if options.nodes != "one":
        try:
            campaign.nodes = Nodes(campaign.work)
        except (OSError, subprocess.CalledProcessError) as error:
            print(f"[skipped] two nodes cannot be made here: {error}")
            if options.nodes == "two":
                return 77
    results = []
    trials = 0
    failure = 0
    signal.signal(signal.SIGTERM, end_in_order)
    try:
        campaign.prepare()
        while len([r for r in results if r.told is not None]) < options.count:
            trials += 1
            if trials > 5 * options.count + 20:
                print(f"given up after {trials - 1} trials: too few come to a stall")
                failure = 1
                break
            two = options.nodes == "two" or (options.nodes == "both" and campaign.nodes is not None and
                                             campaign.random.random() < 0.4)
            result = campaign.trial(two)
            if result is None:
                continue
            results.append(result)
            is_bad = result.told is not None and (not (result.right or result.is_even()) or result.leftovers or
                                                  (result.lines != 1 and not result.is_early()) or
                                                  (result.over or 0) > 2 or not result.has_right_code())
            if options.verbose or is_bad:
                over = "" if result.over is None else f"{result.over:+.2f} s"
                print(f"{'BAD ' if is_bad else ''}{result.nodes} {result.what} {result.how} {result.ranks} victim "
                      f"{result.victim} told {result.told} right {result.right} {over} code {result.code} lines "
                      f"{result.lines} left {result.leftovers} | {result.line or result.phase}", flush=True)
        number = 0
        while campaign.num_clean < options.clean and number < 2 * options.clean:
            campaign.clean(number)
            number += 1
    except KeyboardInterrupt:
        print("interrupted: the table is of what has been done")
        failure = 130
    finally:
        end_all()
        if campaign.nodes is not None:
            campaign.nodes.close()
    table(results)
    counted = [r for r in results if r.told is not None]
    dirty = campaign.dirty
    print(f"clean runs: {campaign.num_clean}, and those before stops; not clean: {dirty}")
    print(f"jobs in which this machine itself stood still for more than {LONGEST_GAP:g} s, not counted: {campaign.frozen}")
    untold = sum(not r.told for r in counted)
    even = sum(r.is_even() for r in counted)
    wrong = sum(not r.right for r in counted) - even
    late = sum((r.over or 0) > 2 for r in counted)
    left = sum(bool(r.leftovers) for r in counted)
    early = sum(r.is_early() for r in counted)
    many = sum(r.lines > 1 for r in counted) - early
    codes = sum(bool(r.told) and not r.has_right_code() for r in counted)
    print(f"stalls: {len(counted)}, untold {untold}, wrong rank {wrong}, both of two ranks where one skips {even}, "
          f"by both nodes before they know each other {early}, later than limit + 2 s {late}, with processes left {left}, "
          f"with more than one message otherwise {many}, with another exit code {codes}")
    is_good = untold + late + left + many + codes + dirty == 0 and wrong <= len(counted) * 0.01
    return failure or (0 if is_good else 1)


if __name__ == "__main__":
    sys.exit(main())
