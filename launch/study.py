"""A study: runs of the program at several points, which one folder keeps and which go on where they stopped.

    with Study("studies/a", "scaling_study", definition) as study:     # ends the script with one line where it cannot be
        study.run(points, MpiLauncher(program, ranks_per_node=4))      # Ctrl-C and SIGTERM raise Stopped
        run = study.finished(points[0])                                # a run_folder.Run, or None
        study.failure(points[1])                                       # why there is none, in one line

The folder holds study.json (what is studied), points/NAME/ (run/, the program's run folder; output.txt, what it and its launcher
printed; state.json, how it ended) and what the script writes of them. A point whose run has ended well is never run again.
"""
import contextlib
import ctypes
import json
import os
import re
import secrets
import shlex
import shutil
import signal
import socket
import subprocess
import time

from messages import BAD_DATA, CANNOT_CREATE, IO, MISSING_INPUT, USAGE, fail, shown
from program import STOPPED, error_line, resolved_options, telling_line
from run_folder import Run, RunError, opened, part

SOME_FAILED, COME_AGAIN = 1, 75  # exit codes of a study besides those of messages.py
ENVIRONMENT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "environment")
FORMAT = 1  # of study.json
# In the words of an outcome: a signal ended the run; and of an error: what ended it came from outside, and tells nothing of it
# (mpirun that gets SIGTERM ends with 1, and has no word for it).
KILLED = re.compile(r"killed by signal|\(SIG|CANCELLED|\|0:[1-9]")
FROM_OUTSIDE = re.compile(rf"killed by signal (1|2|9|15)\b|{STOPPED}|ended with exit code (1$|{COME_AGAIN}\b|143\b)|"
                          r"Slurm job \S+ ended as (CANCELLED|PREEMPTED|NODE_FAIL)")


class Stopped(Exception):
    """Somebody wants the study to end: Ctrl-C, or a signal."""


class Point:
    """One run: its name, which is a folder's; options of `train`; ranks and nodes; words before the program's name."""

    def __init__(self, name, options, ranks, nodes=1, before=()):
        self.name, self.options, self.ranks, self.nodes, self.before = name, options, ranks, nodes, list(before)


# ---- lists of the command line ---------------------------------------------------------------------------------------


def words_of(text, option):
    """Words with commas between them, each once."""
    words = [word.strip() for word in text.split(",")]
    if "" in words:
        fail(f"{option} is '{shown(text)}', a list with an empty place; allowed: values with commas between them", USAGE)
    twice = {word for word in words if words.count(word) > 1}
    if twice:
        fail(f"{option} is '{shown(text)}', which has {shown(min(twice))} more than once", USAGE)
    return words


def numbers_of(text, option, kind=int, least=1):
    """Numbers with commas between them, in growing order."""
    numbers = []
    for word in words_of(text, option):
        try:
            numbers.append(kind(word))
        except ValueError:
            fail(f"{option} is '{shown(text)}', in which '{shown(word)}' is no number; allowed: numbers from {least} with commas "
                 "between them", USAGE)
        if not least <= numbers[-1] < float("inf"):
            fail(f"{option} is '{shown(text)}', in which {shown(word)} is out of range; allowed: {least} or more", USAGE)
    if len(set(numbers)) < len(numbers):
        fail(f"{option} is '{shown(text)}', which has a number more than once", USAGE)
    return sorted(numbers)


def refuse_options(names, taken, reasons):
    """Ends the script where options after --, by their own names (OptionTable.split), are the study's; `reasons`: what to give
    instead."""
    for name in names:
        if name in taken:
            fail(f"--{name} is given after --, but the study gives it to each run; {reasons.get(name, 'leave it out')}", USAGE)


def refuse_missing_data(configuration, runs=""):
    """Ends the script where data that runs read on this machine are not there: the program itself says so only of a run.
    `configuration`: of program.resolved_options(); `runs`: which ones read them, if not all."""
    if configuration.get("data") != "hdf5":
        return
    names = ["train_data", "valid_data"]
    if configuration.get("task") == "forecast":
        names += ["stats", "global_means", "global_stds", "time_means", "static_data"]
    paths = {name: configuration.get(name, "") for name in names}
    # One with escapes is left to the program; what is in a folder that is missing is not told beside it.
    missing = {name: path for name, path in paths.items() if path and "\\" not in path and not os.path.exists(path)}
    told = [f"--{name.replace('_', '-')} '{shown(path)}' does not exist" for name, path in missing.items()
            if os.path.dirname(path) not in missing.values()]
    if told:
        fail((f"{runs}: " if runs else "") + "; ".join(told), MISSING_INPUT)


def signal_text(number):
    """" (SIGKILL)" of 9; empty of what is none: a launcher ends with 128 more than the signal that a rank was killed by."""
    return f" ({signal.Signals(number).name})" if number in set(signal.Signals) else ""


def subject_of(configuration, parameters=None):
    """What is trained, in words: by its name, or where it was given none, by task and size."""
    name = configuration.get("name", "a model")
    if name not in ("run", "builtin"):  # the program's own, for what has no preset or file to take a name from
        return shown(name)
    task = {"classify": "classification", "forecast": "forecasts"}.get(configuration.get("task"), "training")
    size = " x ".join(configuration.get("image_size", "?").split("x"))
    return shown(f"{task} of {size} {'images' if task == 'classification' else 'points'}") + (
        f", {parameters:,} parameters" if parameters else "")


def split_words(text, option):
    """Words as a shell has them; None of an empty text or of None."""
    try:
        return (shlex.split(text) or None) if text else None
    except ValueError as error:
        fail(f"{option} is '{shown(text)}', which is no list of words: {error}", USAGE)


def open_configuration(program, options):
    """program.resolved_options() of a training whose layout the study gives: with --dp left open, what goes with it is as it was
    given. Ends the script where the batch is one of them. Raises Refused."""
    found = resolved_options(program, [*options, "--dp=auto"])
    if found.get("local_batch_size", "none") != "none":
        fail(f"local_batch_size is {shown(found['local_batch_size'])}, a batch that grows with the replicas, and other trainings "
             "would be compared; give -- --global-batch-size=N, which takes its place", USAGE)
    return found


def threads_of(configuration, ranks_per_node):
    """Of each rank, so that it is the same in all runs: --threads, else OMP_NUM_THREADS, else the cores over the ranks of the
    fullest node. `configuration`: of open_configuration()."""
    given = [configuration.get("threads", ""), os.environ.get("OMP_NUM_THREADS", "")]
    share = max(len(os.sched_getaffinity(0)) // ranks_per_node, 1)
    return next((int(text) for text in given if text.isdigit() and int(text)), share)


def processor_of(run):
    """What a run computed with: the type of its GPUs, else of its processor."""
    return shown(part(run.start, "kernels").get("GPU") or part(run.start, "machine").get("cpu") or "an unknown processor")


def processor_lines(settings):
    """A warning where `processors` of settings, the types that their runs were made on, are more than one; else none."""
    types = sorted(set().union(*(setting.processors for setting in settings)))
    line = f"Runs were made on different processors, so their times do not compare: {'; '.join(types)}."
    return [line] if len(types) > 1 else []


# ---- files -----------------------------------------------------------------------------------------------------------


def write_whole(path, text):
    """Whoever looks finds the old file or the new one, whole. Raises OSError."""
    temporary = f"{path}.{os.getpid()}.part"
    try:
        with open(temporary, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        raise OSError(error.errno, error.strerror, path) from error  # of which the user knows, not the temporary one
    finally:
        if os.path.lexists(temporary):
            os.remove(temporary)


def write_json(path, value):
    write_whole(path, json.dumps(value, indent=1, allow_nan=False) + "\n")


def read_json(path):
    """An object; None where there is no such file, half of one, or something else in its place."""
    try:
        with opened(path) as file:
            value = json.load(file)
    except (OSError, ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def this_process(pid):
    """What tells a process from all others; of one that is not there `started` is None."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            started = file.read().rpartition(")")[2].split()[19]
    except OSError:
        started = None
    return {"host": socket.gethostname(), "pid": pid, "started": started}


def is_process(value):
    """Whether it is what this_process() returns, and not what a damaged file has in its place."""
    return (isinstance(value, dict) and isinstance(value.get("host"), str) and isinstance(value.get("pid"), int) and
            isinstance(value.get("started"), str))


def is_gone(process):
    """Whether a process of this machine has ended; of another machine's nobody knows."""
    return process["host"] == socket.gethostname() and this_process(process["pid"]) != process


class Lock:
    """One study at a time writes to a folder: a file that names the process. One of a process of this machine that has ended
    is taken over."""

    def __init__(self, path):
        self.path = path

    def take(self):
        own = f"{self.path}.{os.getpid()}"
        write_json(own, this_process(os.getpid()))
        try:
            while True:
                try:
                    os.link(own, self.path)
                    return
                except FileExistsError:
                    self.remove_stale()
        finally:
            os.remove(own)

    def remove_stale(self):
        owner = read_json(self.path)
        if not is_process(owner):
            if not os.path.lexists(self.path):  # released in between
                return
            fail(f"{shown(self.path)} is no lock of a study; where no study of this folder runs, remove it", CANNOT_CREATE)
        if not is_gone(owner):
            folder = os.path.dirname(self.path)
            fail(f"{shown(folder)} is in use by process {owner['pid']} on {shown(owner['host'])}; wait for that study, "
                 f"or name another folder (--out); where that process is gone, remove {shown(self.path)}", CANNOT_CREATE)
        aside = f"{self.path}.{os.getpid()}.old"
        try:
            os.rename(self.path, aside)
        except FileNotFoundError:
            return
        if (read_json(aside) or {}) != owner:  # another one took it over in between: it stays that one's
            os.rename(aside, self.path)
        else:
            os.remove(aside)

    def release(self):
        """Another's stays: somebody has removed this one, and begun a study."""
        if read_json(self.path) == this_process(os.getpid()):
            os.remove(self.path)


# ---- launchers -------------------------------------------------------------------------------------------------------


def end_with_parent():
    """Called in a new process: the launcher is told to end when the study is killed."""
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG


class MpiLauncher:
    """mpirun, with the settings of launch/environment, one run after the other."""

    at_once = 1
    first_pause, longest_pause = 0.05, 0.5  # s between two looks at what goes on
    goes_on = ""  # what a stopped study leaves

    def __init__(self, program, ranks_per_node=None, hosts=(), words=None):
        """`hosts`: names, of which a run of K nodes takes the first K; `words`: those of the launcher before -n, for instance
        ["mpirun", "--map-by", "slot:PE=8", "--bind-to", "core"]."""
        self.program, self.ranks_per_node, self.hosts, self.words = program, ranks_per_node, list(hosts), words
        self.process = None  # of the last run

    @staticmethod
    def prepare():
        """What state.json keeps of a run that is about to begin."""
        return {}

    def begin(self, point, folder, _prepared):
        """Starts the run of a point. Returns what state.json keeps of it."""
        per_node = self.ranks_per_node or point.ranks
        launcher = shlex.join(self.words) if self.words else '"${VH_MPIRUN[@]}"'
        hosts = ["--host", ",".join(f"{host}:{per_node}" for host in self.hosts[:point.nodes])] if self.hosts else []
        script = f'. "$0" && vh_ranks "$1" && shift && exec {launcher} -n "$@"'
        command = ["bash", "-c", script, ENVIRONMENT, str(per_node), str(point.ranks), *hosts, *point.before,
                   self.program, *point.options]
        with open(os.path.join(folder, "output.txt"), "wb") as output:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                                            start_new_session=True, preexec_fn=end_with_parent)
        return {"process": this_process(self.process.pid)}

    def look(self):
        """Once before outcome() is asked of all runs that go on."""

    def outcome(self, _state):
        """None while the run goes on; else the launcher's exit code in words, empty where it ended well."""
        code = self.process.poll()
        if code is None:
            return None
        if code == 0:
            return ""
        return f"ended with exit code {code}{signal_text(code - 128)}" if code > 0 else f"killed by signal {-code}{signal_text(-code)}"

    def rejoin(self, state):
        """Of a run that an earlier study began: the state to wait for it with, or None. One of a study that was killed is told to
        end. Raises RuntimeError where it does not, or nobody knows."""
        process = state.get("process")
        for _ in range(100):
            if not is_process(process) or is_gone(process):
                return None
            if process["host"] != socket.gethostname():
                break
            time.sleep(0.2)
        raise RuntimeError(f"process {process['pid']} on {shown(process['host'])}, begun by an earlier study of this folder, may "
                           "still run; end it, or wait for it")

    def stop(self):
        """Ends the run that goes on."""
        if self.process is None:  # stopped before the first one had begun
            return
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


class SlurmLauncher:
    """One job a point: sbatch with a job script that hands its arguments on to the program, as those of launch/slurm do."""

    at_once = 1 << 20  # Slurm itself decides how many run
    first_pause, longest_pause = 1.0, 15.0
    going_on = {"PENDING", "CONFIGURING", "RUNNING", "COMPLETING", "SUSPENDED", "STOPPED", "REQUEUED", "REQUEUE_HOLD",
                "REQUEUE_FED", "RESIZING", "RESV_DEL_HOLD", "SIGNALING", "SPECIAL_EXIT", "STAGE_OUT"}
    goes_on = "; its Slurm jobs go on, and the same command collects them (scancel ends them)"

    def __init__(self, script, ranks_per_node, words=()):
        """`words`: further options of sbatch."""
        self.script, self.ranks_per_node, self.words = script, ranks_per_node, list(words)
        self.queue, self.misses = None, 0  # {job: [its state, its comment]}; how often squeue did not answer
        self.has_jobs = False  # of this call, or of an earlier one

    @staticmethod
    def prepare():
        """The comment by which a job is found whose number was never read: the study was killed while sbatch ran."""
        return {"comment": f"vit_hybrid-study-{secrets.token_hex(8)}"}

    def begin(self, point, folder, prepared):
        output = os.path.join(folder, "output.txt")
        write_whole(output, "")
        # What stands on sbatch's command line goes before the #SBATCH lines of the script.
        command = ["sbatch", "--parsable", f"--nodes={point.nodes}", f"--ntasks-per-node={self.ranks_per_node}",
                   f"--job-name=vh-{point.name}", f"--output={output.replace('%', '%%')}", "--no-requeue",
                   f"--comment={prepared['comment']}", *self.words, self.script, *point.options]
        done = self.call(command)
        job = done.stdout.strip().split(";")[0]
        if done.returncode != 0 or not job:
            why = shown(" ".join((done.stderr or done.stdout).split()))
            fail(f"sbatch ended with exit code {done.returncode}: {why}{'; what was submitted goes on' if self.has_jobs else ''}", IO)
        self.has_jobs = True
        return {**prepared, "job": job, "command": command}

    @staticmethod
    def call(command):
        try:
            return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True,
                                  text=True, errors="replace", check=False)
        except OSError as error:
            fail(f"{command[0]} cannot be run: {error.strerror}; Slurm's commands must be in PATH", MISSING_INPUT)

    def look(self):
        """At all jobs of the user, also those that have ended: without accounting squeue tells for some minutes how."""
        listed = self.call(["squeue", "--noheader", "--me", "--states=all", "--format=%i %T %k"])
        if listed.returncode != 0:  # the controller does not answer: it may again
            self.queue, self.misses = None, self.misses + 1
            if self.misses == 20:
                fail(f"squeue does not answer: {shown(' '.join(listed.stderr.split()))}; the jobs go on, give the command again", IO)
            return
        self.queue = {job: told for job, *told in (line.split(None, 2) for line in listed.stdout.splitlines() if line.strip())}
        self.misses = 0

    def outcome(self, state):
        if self.queue is None:
            return None
        job = state["job"]
        told = (self.queue.get(job) or [""])[0]
        if not told:  # squeue has forgotten it
            kept = self.call(["sacct", "-X", "--noheader", "--parsable2", f"--jobs={job}", "--format=State,ExitCode"])
            told = kept.stdout.split("\n")[0] if kept.returncode == 0 else ""
        if told.partition("|")[0] in self.going_on:
            return None
        # Without accounting, a job that is gone is judged by its run folder.
        return "" if not told or told.startswith("COMPLETED") else f"Slurm job {job} ended as {shown(told)}"

    def rejoin(self, state):
        while self.queue is None:
            self.look()
        jobs = [job for job, told in self.queue.items() if told[1:] == [state.get("comment")]]
        state = {"job": jobs[0], **state} if jobs else state
        goes_on = "job" in state and self.outcome(state) is None
        self.has_jobs |= goes_on
        return state if goes_on else None

    def stop(self):
        """Jobs are not the study's to end."""


# ---- the study -------------------------------------------------------------------------------------------------------


class Study:
    """A folder with a lock on it. `definition`: all that decides what is run, as JSON; one of another definition is refused."""

    def __init__(self, folder, kind, definition):
        """`kind`: the script's name."""
        self.folder, self.kind, self.began = folder, kind, time.monotonic()
        self.definition = json.loads(json.dumps(definition))
        self.lock = Lock(os.path.join(folder, "study.lock"))

    def __enter__(self):
        path = os.path.join(self.folder, "study.json")
        try:
            if os.path.isdir(self.folder) and os.listdir(self.folder) and not os.path.lexists(path) and not self.has_own_files():
                fail(f"{shown(self.folder)} holds other files and no study; name a new folder (--out)", CANNOT_CREATE)
            os.makedirs(self.folder, exist_ok=True)
            self.check_kind(path)
            self.lock.take()
            try:
                self.check(path)
            except SystemExit:
                self.lock.release()
                raise
        except OSError as error:
            fail(f"{shown(error.filename or self.folder) or 'an empty name'}: {error.strerror}; name a folder that can be written (--out)",
                 CANNOT_CREATE)
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            signal.signal(number, self.on_signal)
        return self

    def __exit__(self, *_):
        with contextlib.suppress(OSError):  # somebody has removed it
            if self.has_own_files():  # it was refused before its first run, and must not keep a corrected one from its folder
                os.remove(os.path.join(self.folder, "study.json"))
        self.lock.release()
        with contextlib.suppress(OSError):  # which holds something, as a rule
            os.rmdir(self.folder)

    @staticmethod
    def on_signal(number, _frame):
        raise Stopped(signal.Signals(number).name)

    def has_own_files(self):
        """What a study has that ended before its first run."""
        return all(name.startswith("study.") for name in os.listdir(self.folder))

    def check_kind(self, path):
        if not os.path.lexists(path):
            return
        kept = read_json(path)
        if kept is None or not isinstance(kept.get("definition"), dict) or kept.get("format") != FORMAT:
            fail(f"{shown(path)} is no study of this version; name a new folder (--out)", BAD_DATA)
        if kept.get("kind") != self.kind:
            fail(f"{shown(self.folder)} holds a study of launch/{shown(kept.get('kind'))}; name a new folder (--out)",
                 CANNOT_CREATE)

    def check(self, path):
        """Keeps the definition, or compares it with what is kept; under the lock."""
        if not os.path.lexists(path):
            write_json(path, {"kind": self.kind, "format": FORMAT, "definition": self.definition})
            return
        self.check_kind(path)
        changes = differences(self.definition, read_json(path)["definition"])
        if changes:
            fail(f"{shown(self.folder)} holds another study: {'; '.join(changes[:8])}" +
                 (f"; and {len(changes) - 8} more" if len(changes) > 8 else "") +
                 "; give the same again, or a new folder (--out)", CANNOT_CREATE)

    def say(self, text):
        print(f"{self.kind}: [{time.monotonic() - self.began:.0f} s] {text}", flush=True)

    def point_folder(self, point):
        return os.path.join(self.folder, "points", point.name)

    def run_folder(self, point):
        """Where the program puts the run of a point; absolute."""
        return os.path.abspath(os.path.join(self.point_folder(point), "run"))

    def state_path(self, point):
        return os.path.join(self.point_folder(point), "state.json")

    def state(self, point):
        return read_json(self.state_path(point)) or {}

    def set_state(self, point, **state):
        write_json(self.state_path(point), state)

    def finished(self, point):
        """The run of a point that ended well and left whole records and a whole summary, else None."""
        if self.state(point).get("state") not in ("running", "finished"):
            return None
        try:
            run = Run(self.run_folder(point))
        except RunError:
            return None
        return run if run.state == "finished" and not run.notes else None

    def failure(self, point):
        """Why a point has no finished run; None where nothing has been tried."""
        state = self.state(point)
        return shown(state.get("error")) if state.get("state") == "failed" else None

    def forget(self, point):
        """The point is run again, also where it has ended well."""
        shutil.rmtree(self.point_folder(point), ignore_errors=True)

    def run(self, points, launcher):
        """Runs all that are not finished, also those that failed before; a failed one does not keep others from running. Raises
        Stopped; whatever ends it, the run that goes on was ended before."""
        waiting, going = [], []
        for point in points:
            state = self.state(point)
            try:
                known = launcher.rejoin(state) if state.get("state") == "running" else None
            except RuntimeError as error:
                fail(f"{error}; where it is gone, remove {shown(self.state_path(point))}", CANNOT_CREATE)
            if known:
                self.say(f"{point.name}: waiting for the job of an earlier call")
                self.set_state(point, **known)
                going.append(point)
            elif not self.finished(point):
                waiting.append(point)
        total = len(points)
        if len(waiting) + len(going) < total:
            self.say(f"{total - len(waiting) - len(going)} of {total} runs are there already")
        pause = launcher.first_pause
        try:
            while waiting or going:
                while waiting and len(going) < launcher.at_once:
                    going.append(waiting.pop(0))
                    self.begin(going[-1], launcher)
                time.sleep(pause)
                launcher.look()
                still = [point for point in going if not self.has_ended(point, launcher, total)]
                pause = min(1.5 * pause, launcher.longest_pause) if len(still) == len(going) else launcher.first_pause
                going = still
        except BaseException:  # Stopped, and a file that cannot be written
            if going:
                launcher.stop()
            raise

    def begin(self, point, launcher):
        folder = self.point_folder(point)
        try:
            self.forget(point)  # half a run, or a failed one
            os.makedirs(folder)
            prepared = launcher.prepare()
            if prepared:
                self.set_state(point, state="running", **prepared)
            self.set_state(point, state="running", **launcher.begin(point, folder, prepared))
        except OSError as error:
            fail(f"{shown(error.filename or folder)}: {error.strerror}", CANNOT_CREATE)

    def has_ended(self, point, launcher, total):
        state = self.state(point)
        outcome = launcher.outcome(state)
        if outcome is None:
            return False
        is_whole = False
        for _ in range(5):  # a shared file system may show the last files a little later
            is_whole = outcome == "" and self.finished(point) is not None
            if is_whole or outcome != "" or "job" not in state:
                break
            time.sleep(1)
        left = f"{point.name}{f' of {total} runs' if total > 1 else ''}"
        if is_whole:
            self.set_state(point, **{**state, "state": "finished"})
            self.say(f"{left}: done")
            return True
        output = self.output(point)
        # Of a rank that was killed, or crashed, the launcher told the others to end.
        besides = STOPPED if KILLED.search(outcome) or " Signal: " in output else ()
        said = None if outcome.startswith("killed by signal") else error_line(output, besides)  # by ranks that saw it end
        has_begun = os.path.isdir(self.run_folder(point))
        error = said or "; output.txt: ".join(filter(None, [
            outcome or "it ended without whole records (metrics.jsonl, summary.json)",
            telling_line(output, is_last_telling=not has_begun and not KILLED.search(outcome))]))
        self.set_state(point, **{**state, "state": "failed", "error": error, "outcome": outcome})
        self.say(f"{left}: failed: {error}")
        return True

    def output(self, point):
        try:
            with open(os.path.join(self.point_folder(point), "output.txt"), encoding="utf-8", errors="replace") as file:
                return file.read()
        except OSError:
            return ""


def differences(now, before, path=""):
    """Lines that say in what two objects of JSON differ."""
    lines = []
    for key in {**now, **before}:
        new, old = now.get(key), before.get(key)
        name = f"{path}{shown(key)}"
        if isinstance(new, dict) and isinstance(old, dict):
            lines += differences(new, old, f"{name}.")
        elif new != old:
            lines.append(f"{name} is {value_text(new)} (there: {value_text(old)})")
    return lines


def failure_lines(failures):
    """A line for each error of [(name of a run, its error)], with the names of all runs that ended with it."""
    names = {}
    for name, error in failures:
        names.setdefault(error, []).append(name)
    return [f"Failed: {', '.join(those)}: {error}" for error, those in names.items()]


def value_text(value):
    """In words: of lists with commas, of a rung the words of its command line."""
    if isinstance(value, dict):
        text = " ".join(map(str, value.values()))
    elif isinstance(value, list):
        text = ", ".join(map(str, value))
    else:
        text = "not given" if value is None else value if isinstance(value, str) else json.dumps(value)
    return shown(text if len(text) <= 200 else text[:199] + "\u2026") or "''"
