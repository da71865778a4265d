#!/usr/bin/env python3
"""Tests --profile-steps and launch/profile.

    profile.py control  PROGRAM RANKS LAUNCHER WORDS...    the program, with this script in perf's place at the FIFOs
    profile.py launcher SOURCE                             launch/profile with stand-ins for perf, nsys, mpirun and the program
    profile.py perf     SOURCE PROGRAM RANKS LAUNCHER...   launch/profile with the perf that is here, where it may be used

The launcher's words end with the option that takes the number of ranks.
"""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import xml.etree.ElementTree as ElementTree
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
from checked_folder import CheckedFolder  # noqa: E402

SMALL = ["--depth=2", "--embed-dim=32", "--generated-samples=64", "--generated-valid-samples=0", "--keep-checkpoints=none",
         "--threads=1", "--device=cpu", "--deterministic", "--log-interval=1"]


class Failure(Exception):
    pass


def require(holds, what):
    if not holds:
        raise Failure(what)


# ---- the program and its control -------------------------------------------------------------------------------------


class Perf:
    """The end of the FIFOs that perf has, in a thread: keeps what comes, and how many steps the log of the run had then."""

    def __init__(self, folder, run, answers=True, ends_after=None):
        """Without `answers` it reads and is silent; `ends_after`: closes its ends without an answer to that command."""
        folder.mkdir()
        self.paths = [folder / "commands", folder / "answers"]
        for path in self.paths:
            os.mkfifo(path)
        self.files = [os.open(path, os.O_RDWR | os.O_NONBLOCK) for path in self.paths]
        self.run, self.is_answering, self.ends_after = run, answers, ends_after
        self.commands = []
        self.thread = threading.Thread(target=self.serve, daemon=True)
        self.thread.start()

    def steps(self):
        return len(re.findall(r"^step \d+/", (self.run / "out.log").read_text(), re.M))

    def serve(self):
        text = b""
        while self.files:
            try:
                text += os.read(self.files[0], 64)
            except BlockingIOError:
                time.sleep(0.005)
            while b"\n" in text:
                command, text = text.split(b"\n", 1)
                before = self.steps()
                time.sleep(0.2)
                self.commands.append((command.decode(), before, self.steps()))
                if command.decode() == self.ends_after:
                    self.close()
                    return
                if self.is_answering:
                    os.write(self.files[1], b"ack\n\0")  # perf sends the end of its string too

    def close(self):
        files, self.files = self.files, []
        for file in files:
            os.close(file)


class Runs:
    def __init__(self, program, ranks, launcher, work):
        self.program, self.ranks, self.launcher, self.work, self.number = program, ranks, launcher, Path(work), 0

    def folder(self):
        self.number += 1
        return self.work / f"run{self.number}"

    def finish(self, run, words, control=None, ranks=1, code=0):
        """(standard output, standard error). `control`: what PERF_RECORD_CONTROL is, with RANK for the rank."""
        command = [*self.launcher, str(ranks)] if ranks > 1 else []
        environment = {**os.environ, "XDG_CACHE_HOME": str(self.work / "cache")}
        if control is not None:
            rank = "${OMPI_COMM_WORLD_RANK:-${PMI_RANK:-0}}"
            command += ["bash", "-c", f'export PERF_RECORD_CONTROL="{control.replace("RANK", rank)}"; exec "$0" "$@"']
        command += [self.program, *SMALL, f"--run-dir={run}", "--steps=6", *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment, check=False)
        require(done.returncode == code, f"{' '.join(words)} ended with {done.returncode}, not {code}: {done.stderr[-600:]}")
        return done.stdout, done.stderr


def warnings_in(text):
    return re.findall(r"^vit_hybrid: warning: (.*)$", text, re.M)


def test_control(runs):
    control = f"fifo:{runs.work}/NAME.RANK/commands,{runs.work}/NAME.RANK/answers"

    # Both commands come at their time, to every rank, and no rank goes on before all profilers have answered.
    run = runs.folder()
    profilers = [Perf(runs.work / f"a.{rank}", run) for rank in range(runs.ranks)]
    out, err = runs.finish(run, ["--profile-steps=3-4"], control.replace("NAME", "a"), runs.ranks)
    for rank, perf in enumerate(profilers):
        # The log is rank 0's: other ranks may be told while it still writes the last step.
        told = perf.commands if rank == 0 else [(command, steps, max(then, steps)) for (command, _, then), steps in zip(perf.commands, (2, 4))]
        require(told == [("enable", 2, 2), ("disable", 4, 4)], f"rank {rank} was told (command, steps done) {perf.commands}")
    require(f"profile of steps 3 to 4: captured on {runs.ranks} of {runs.ranks} ranks" in out, f"said is\n{out}")
    require(not warnings_in(err), f"warned is {warnings_in(err)}")

    # The last steps: it ends with the run.
    run = runs.folder()
    perf = Perf(runs.work / "b.0", run)
    runs.finish(run, ["--profile-steps=6"], control.replace("NAME", "b"))
    require(perf.commands == [("enable", 5, 5), ("disable", 6, 6)], f"told was {perf.commands}")

    # One that never answers costs its patience once, a warning, and no step.
    run = runs.folder()
    profilers = [Perf(runs.work / f"c.{rank}", run, answers=rank == 0) for rank in range(runs.ranks)]
    out, err = runs.finish(run, ["--profile-steps=3-4", "--timeout=8"], control.replace("NAME", "c"), runs.ranks)
    require(warnings_in(err) == ["the profile of rank 1 is lost, or not of these steps alone: perf does not answer (for 2.0 s)"],
            f"warned is {warnings_in(err)}")
    require(f"captured on {runs.ranks - 1} of {runs.ranks} ranks" in out and "step 6/6" in out, f"said is\n{out}")
    require([command for command, *_ in profilers[1].commands] == ["enable", "disable"], f"told was {profilers[1].commands}")

    # One that ends: before it answers, after it has, and before anything.
    for name, ends_after, wanted in (("d", "enable", 1), ("e", "disable", 2)):
        run = runs.folder()
        perf = Perf(runs.work / f"{name}.0", run, ends_after=ends_after)
        out, err = runs.finish(run, ["--profile-steps=3-4"], control.replace("NAME", name))
        require(len(perf.commands) == wanted, f"told was {perf.commands}")
        require(warnings_in(err) == ["the profile of rank 0 is lost, or not of these steps alone: perf has ended"],
                f"warned is {warnings_in(err)}")
        require("step 6/6" in out and "captured" not in out, f"said is\n{out}")
    perf = Perf(runs.work / "f.0", run)
    perf.close()
    _, err = runs.finish(runs.folder(), ["--profile-steps=3-4"], control.replace("NAME", "f"))
    require(len(warnings_in(err)) == 1 and warnings_in(err)[0].endswith(": perf has ended"), f"warned is {warnings_in(err)}")

    # No profiler; files that are no FIFOs, which stay as they are; a variable that names none; steps beyond the run.
    _, err = runs.finish(runs.folder(), ["--profile-steps=3-4"])
    require(warnings_in(err) == ["--profile-steps 3-4 captures nothing: no profiler is attached; launch/profile attaches one to "
                                 "every rank"], f"warned is {warnings_in(err)}")
    plain = runs.work / "plain"
    plain.write_text("mine")
    _, err = runs.finish(runs.folder(), ["--profile-steps=3-4"], f"fifo:{plain},{plain}")
    require(len(warnings_in(err)) == 1 and f"'{plain}' of PERF_RECORD_CONTROL is no FIFO" in err, f"warned is {warnings_in(err)}")
    require(plain.read_text() == "mine", f"{plain} is now {plain.read_text()}")
    _, err = runs.finish(runs.folder(), ["--profile-steps=3-4"], "fd:3,4", code=64)
    require("vit_hybrid: the variable PERF_RECORD_CONTROL is 'fd:3,4'; it is fifo:COMMANDS,ANSWERS" in err, f"said is {err}")
    _, err = runs.finish(runs.folder(), ["--profile-steps=5-7"], code=64)
    require("--profile-steps 5-7 is beyond the run, which ends with step 6; allowed are steps 1 to 6" in err, f"said is {err}")


# ---- what launch/profile writes --------------------------------------------------------------------------------------


def check_speedscope(path):
    """Holds the file to the rules of the format; returns {name of a profile: number of its samples}."""
    content = json.loads(path.read_text())
    require(content["$schema"] == "https://www.speedscope.app/file-format-schema.json", content["$schema"])
    frames = content["shared"]["frames"]
    require(frames and all(isinstance(frame["name"], str) and frame["name"] for frame in frames), "a frame has no name")
    used = set()
    for profile in content["profiles"]:
        require(profile["type"] == "sampled" and profile["unit"] == "none", f"{profile['name']} is of another kind")
        require(len(profile["samples"]) == len(profile["weights"]), f"{profile['name']} has other weights than samples")
        require(profile["startValue"] == 0 and profile["endValue"] == sum(profile["weights"]) == len(profile["samples"]),
                f"{profile['name']} weighs {sum(profile['weights'])}")
        for stack in profile["samples"]:
            require(stack and all(isinstance(i, int) and 0 <= i < len(frames) for i in stack), f"a stack is {stack}")
            used.update(stack)
    require(used == set(range(len(frames))), "frames are not all used")
    require(content["activeProfileIndex"] < len(content["profiles"]), "the active profile is not there")
    return {profile["name"]: len(profile["samples"]) for profile in content["profiles"]}


def check_flame_graph(path):
    """Boxes lie within those that called them and apart from their neighbours. Returns {title: count}."""
    root = ElementTree.parse(path).getroot()
    rows, counts = {}, {}
    for group in root.iter("{http://www.w3.org/2000/svg}g"):
        title, box = group.find("{*}title").text, group.find("{*}rect").attrib
        left, top, width = (float(box[key]) for key in ("x", "y", "width"))
        rows.setdefault(top, []).append((left, left + width))
        name, count = re.fullmatch(r"(.*): (\d+) samples, [\d.]+ %", title).groups()
        counts[name] = counts.get(name, 0) + int(count)
    tops = sorted(rows, reverse=True)
    require(len(rows[tops[0]]) == 1, "there are several roots")
    for below, row in zip(tops, tops[1:]):
        boxes = sorted(rows[row])
        require(all(a[1] <= b[0] + 0.02 for a, b in zip(boxes, boxes[1:])), f"boxes overlap at {row}")
        require(all(any(b[0] - 0.02 <= left and right <= b[1] + 0.32 for b in rows[below]) for left, right in boxes),
                f"a box at {row} lies upon none")
    return counts


FAKE_PERF = r'''#!/usr/bin/python3 -SE
import os, signal, subprocess, sys
words, log = sys.argv[1:], open(os.environ["FAKES"] + "/perf.log", "a")
given = dict(word[2:].split("=", 1) for word in words if word.startswith("--") and "=" in word)
if words[0] == "record":
    program = words[words.index("--") + 1:]
    if given["event"] not in os.environ.get("FAKE_EVENTS", "cycles").split():
        print("Error:\nNo permission to enable %s event.\n" % given["event"], file=sys.stderr)
        sys.exit(255)
    assert given["delay"] == "-1" and given["freq"] == "499" and given["call-graph"].startswith("dwarf"), words
    commands, answers = given["control"].removeprefix("fifo:").split(",")
    files = [os.open(path, os.O_RDWR | os.O_NONBLOCK) for path in (commands, answers)]
    children, stops = [], []
    def stop(*_):  # as perf does
        stops.append(True)
        for child in children:
            child.terminate()
    signal.signal(signal.SIGTERM, stop)  # first: the child may have started before Popen() returns
    children.append(subprocess.Popen(program))
    if stops:
        children[0].terminate()
    code = children[0].wait()
    said = os.read(files[0], 1000).decode() if program != ["true"] else ""
    print("record", program[0].split("/")[-1], given["event"], said.split(), file=log)
    is_killed = "rank_1." in given["output"] and "FAKE_KILLED" in os.environ
    open(given["output"], "w").write("broken" if is_killed else os.environ.get("FAKE_SCRIPT", "samples"))
    sys.exit(code)
assert words[0] == "script" and "--show-task-events" in words, words
path = words[words.index("-i") + 1]
kind = open(path).read()
if kind == "broken":
    print("incompatible file format", file=sys.stderr)
    sys.exit(1)
if kind == "samples":
    sys.stdout.write(open(os.environ["FAKES"] + "/script.txt").read())
'''

FAKE_PROGRAM = r'''#!/usr/bin/python3 -SE
import os, sys
fakes = os.environ["FAKES"]
rank = next((os.environ[n] for n in ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID") if n in os.environ), "-")
control = os.environ.get("PERF_RECORD_CONTROL")
if control:
    with open(control.removeprefix("fifo:").split(",")[0], "w") as commands:
        commands.write("enable\ndisable\n")
print("program", rank, " ".join(sys.argv[1:]), file=open(fakes + "/program.log", "a"))
sys.exit(int(os.environ.get("FAKE_CODE", "0")))
'''

FAKE_LAUNCHER = r'''#!/usr/bin/python3 -SE
import os, subprocess, sys
number = int(sys.argv[2])
name = {"mpirun": "OMPI_COMM_WORLD_RANK", "mpiexec": "PMI_RANK", "srun": "SLURM_PROCID"}[os.path.basename(sys.argv[0])]
inherited = {**os.environ, "SLURM_PROCID": "0"}  # of the job script
ranks = [subprocess.Popen(sys.argv[3:], env={**inherited, name: str(rank)}) for rank in range(number)]
sys.exit(max(rank.wait() for rank in ranks))
'''

FAKE_NSYS = r'''#!/usr/bin/python3 -SE
import os, subprocess, sys
words = sys.argv[1:]
given = dict(word[2:].split("=", 1) for word in words if word.startswith("--") and "=" in word)
if words[0] == "profile":
    assert set(given["trace"].split(",")) == {"cuda", "nvtx", "osrt", "mpi"}, words
    assert given["capture-range"] == "cudaProfilerApi" and given["capture-range-end"] == "stop", words
    program = words[next(i for i, word in enumerate(words[1:], 1) if not word.startswith("--")):]
    code = subprocess.run(program).returncode
    if os.environ.get("FAKE_CAPTURE") != "no":
        open(given["output"] + ".nsys-rep", "w").write("report")
    sys.exit(code)
assert words[0] == "stats" and given["format"] == "csv" and words[-1].endswith(".nsys-rep"), words
if "rank_1." in words[-1] and "FAKE_KILLED" in os.environ:
    print("Processing...")
    sys.exit("ERROR: it is damaged")
tables = {
    "cuda_gpu_kern_sum": """Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name
75.0,6000000,60,100000.0,100000.0,1,2,0.0,"void gemm<float, 128>(Params)"
25.0,2000000,20,100000.0,100000.0,1,2,0.0,layer_norm
""",
    "cuda_gpu_mem_time_sum": """Time (%),Total Time (ns),Count,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Operation
75.0,"1,500,000",6,250000.0,250000.0,1,2,0.0,[CUDA memcpy Host-to-Device]
15.0,300000,3,100000.0,100000.0,1,2,0.0,[CUDA memcpy Device-to-Host]
10.0,200000,2,100000.0,100000.0,1,2,0.0,[CUDA memset]
""",
    "cuda_gpu_mem_size_sum": """Total (MB),Count,Avg (MB),Med (MB),Min (MB),Max (MB),StdDev (MB),Operation
12.5,6,2.0,2.0,1,2,0.0,[CUDA memcpy Host-to-Device]
0.5,3,0.1,0.1,1,2,0.0,[CUDA memcpy Device-to-Host]
""",
}
print(f"Generating SQLite file\nProcessing [{words[-1]}] with [{given['report']}]...\n")
if os.environ.get("FAKE_CAPTURE") == "idle":
    print("SKIPPED: it does not contain CUDA kernel data.")
else:
    print(tables[given["report"]].replace("(ns)", os.environ.get("FAKE_UNIT", "(ns)")))
'''


def script_text():
    """As perf script prints it: of the main thread 7 two samples in forward, of which one has no callers, four in backward and one
    between steps; of thread 8 one while the main thread is in backward, and one of its own reading."""
    step = "\t   1 vit_hybrid::train::Trainer::train_step (/x/vit_hybrid)\n\t   1 main (/x/vit_hybrid)\n"

    def sample(name, thread, at, *frames, tail=""):
        head = f"{name:>9s}     7/{thread}   {at:.6f}: cycles:P: \n"
        return head + "".join(f"\t    ffff {function} ({library})\n" for function, library in frames) + tail + "\n"

    def rename(name, at):
        return f"{name:>16s}     7/7     {at:.6f}: PERF_RECORD_COMM: {name}:7/7\n"
    run = ("vit_hybrid::train::Engine::train_step", "/x/vit_hybrid")
    return "".join([
        "       perf-exec     0/0        0.000000: PERF_RECORD_COMM exec: vit_hybrid:7/7\n",
        rename("forward", 1.0), sample("forward", 7, 1.1, ("mkl_blas_sgemm", "/x/libtorch_cpu.so")),
        sample("forward", 7, 1.2, ("gelu<a, b (c)>", "/x/vit_hybrid"), run, tail=step),
        rename("backward", 2.0), sample("backward", 7, 2.1, ("[unknown]", "/tmp/perf-7.map"), ("[unknown]", "[unknown]")),
        sample("backward", 7, 2.2, ("finish_task_switch", "[kernel.kallsyms]"), ("opal_progress", "/x/libopen-pal.so.40.30.2"), run,
               tail=step),
        sample("forward", 8, 2.25, ("gelu<a, b (c)>", "/x/vit_hybrid (deleted)"), ("clone3", "/x/libc.so.6")),
        sample("read", 8, 2.3, ("H5D__read", "/x/libhdf5_openmpi.so.103"), ("clone3", "/x/libc.so.6")),
        sample("backward", 7, 2.3, ("at::add", "/x/libtorch_cpu.so"), run, tail=step),
        sample("backward", 7, 2.4, ("at::add", "/x/libtorch_cpu.so"), run, tail=step),
        "      vit_hybrid     7/7     2.500000: PERF_RECORD_LOST lost 3\n",
        rename("vit_hybrid", 3.0), sample("vit_hybrid", 7, 3.1, ("write", "/x/libc.so.6"), ("_start", "/x/vit_hybrid"))])


WANTED_TABLE = """\
% of all samples  forward  backward  reading ahead  between steps   all
vit_hybrid           11.1      11.1              0              0  22.2
LibTorch                0      22.2              0              0  22.2
BLAS                 11.1         0              0              0  11.1
oneDNN                  0      11.1              0              0  11.1
kernel                  0      11.1              0              0  11.1
HDF5 and zlib           0         0           11.1              0  11.1
C library               0         0              0           11.1  11.1
all                  22.2      55.6           11.1           11.1   100
"""


class Launches:
    def __init__(self, source, work):
        self.script, self.work, self.number = Path(source) / "launch/profile", Path(work), 0
        self.fakes = self.work / "fakes"
        self.fakes.mkdir()
        (self.fakes / "script.txt").write_text(script_text())
        for name, text in (("perf", FAKE_PERF), ("vit_hybrid", FAKE_PROGRAM), ("nsys", FAKE_NSYS), ("mpirun", FAKE_LAUNCHER),
                           ("mpiexec", FAKE_LAUNCHER), ("srun", FAKE_LAUNCHER)):
            (self.fakes / name).write_text(text)
            (self.fakes / name).chmod(0o755)

    def launch(self, words, command=("vit_hybrid", "--profile-steps=2-3"), code=0, out=None, without=None, before=(),
               **environment):
        """(folder, standard output, standard error)."""
        self.number += 1
        out = out or self.work / f"out{self.number}"
        for name in ("perf.log", "program.log"):
            (self.fakes / name).write_text("")
        path = f"{self.fakes}:{os.environ['PATH']}"
        if without:  # a PATH that has all but this
            path = str(self.work / f"without-{without}")
            os.makedirs(path, exist_ok=True)
            for name in ("python3", "env", *(n for n in ("mpirun", "vit_hybrid", "perf", "nsys") if n != without)):
                found = self.fakes / name if (self.fakes / name).exists() else Path("/usr/bin") / name
                if not (Path(path) / name).exists():
                    os.symlink(found, Path(path) / name)
        unset = ("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID", "VIT_HYBRID_PROFILE_STEPS")
        kept = {key: value for key, value in os.environ.items() if key not in unset}
        done = subprocess.run([*before, sys.executable, self.script, *words, f"--out={out}", "--", *command], capture_output=True,
                              text=True, timeout=60, env={**kept, "PATH": path, "FAKES": str(self.fakes), **environment}, check=False)
        require(done.returncode == code, f"{' '.join([*words, '--', *command])} ended with {done.returncode}, not {code}:\n"
                f"{done.stdout[-600:]}{done.stderr[-1200:]}")
        return out, done.stdout, done.stderr

    def refused(self, words, text, code, **arguments):
        out, _, err = self.launch(words, code=code, **arguments)
        require(err.startswith("profile: ") and err.count("\n") == 1 and text in err, f"refused with\n{err}")
        return out

    def log(self, name):
        return sorted((self.fakes / f"{name}.log").read_text().splitlines())


PERF = ["--tool=perf", "--frequency=499"]


def test_perf_words(launches):
    for launcher in ("mpirun", "mpiexec", "srun"):
        command = [launcher, "-n", "3", "vit_hybrid", "--dp=3", "--profile-steps", "2-3", "--name=vit_hybrid"]
        out, text, err = launches.launch(PERF, command)
        require(not err, f"{launcher}: said is\n{err}")
        require(launches.log("perf") == ["record true cycles []"] * 3 + ["record vit_hybrid cycles ['enable', 'disable']"] * 3,
                f"{launcher}: perf was used so: {launches.log('perf')}")
        wanted = [f"program {rank} --dp=3 --profile-steps 2-3 --name=vit_hybrid" for rank in range(3)]
        require(launches.log("program") == wanted, f"{launcher}: the program ran so: {launches.log('program')}")
        names = {f"rank_{rank}.{ending}" for rank in range(3) for ending in ("perf.data", "svg", "speedscope.json")}
        require({path.name for path in out.iterdir()} == names | {"summary.txt"}, f"{launcher}: there are {sorted(out.iterdir())}")
    require(text == (out / "summary.txt").read_text() + f"profile: {out}\n", "the summary is not what is printed")
    require(text.startswith("27 samples of processor time (cycles) on 3 ranks;"), f"said is {text}")
    require(WANTED_TABLE in text, f"said is\n{text}\nnot\n{WANTED_TABLE}")
    require("perf lost 9 samples" in text, f"said is\n{text}")
    rows = {row.split()[0]: row for row in text.split("function ")[1].split("\n\n")[0].splitlines()[1:]}
    require(re.search(r" vit_hybrid +22\.2 +22\.2$", rows["gelu<a,"]), f"functions are {rows}")
    require(re.search(r" LibTorch +22\.2 +22\.2$", rows["at::add"]) and "oneDNN" in rows["code"], f"functions are {rows}")
    require(re.search(r"^ +2 +9 +22\.2 ", text, re.M), "there is no row of rank 2")

    profiles = check_speedscope(out / "rank_1.speedscope.json")
    require(profiles == {"rank 1, main thread": 7, "rank 1, thread 8": 2}, f"profiles are {profiles}")
    counts = check_flame_graph(out / "rank_1.svg")
    wanted = {"rank 1": 9, "forward": 2, "backward": 5, "other threads": 2, "callers unknown": 2, "gelu<a, b (c)> (vit_hybrid)": 2,
              "vit_hybrid::train::Engine::train_step (vit_hybrid)": 4, "code that oneDNN generated (oneDNN)": 1}
    require({name: counts.get(name) for name in wanted} == wanted, f"boxes are {counts}")
    require("Trainer::train_step" not in str(counts), "what calls the step is shown")

    # Where processors count nothing the clock does, and the process is told apart from its job's rank 0 without a launcher.
    _, text, _ = launches.launch(PERF, FAKE_EVENTS="cpu-clock:u")
    require(launches.log("perf")[-1] == "record vit_hybrid cpu-clock:u ['enable', 'disable']", f"used so: {launches.log('perf')}")


def test_perf_kinds(source):
    sys.path.insert(0, str(Path(source) / "launch"))
    import perf_report
    for library, wanted in (("[kernel.kallsyms]", "kernel"), ("[guest.kernel.kallsyms.7]", "kernel"), ("[vdso]", "kernel"),
                            ("[vsyscall]", "kernel"), ("[ext4]", "kernel"), ("nvme.ko.xz", "kernel"), ("[unknown]", "others"),
                            ("[JIT] tid 7", "oneDNN"), ("perf-7.map", "oneDNN")):
        kind = perf_report.kind_of("[unknown]", library)
        require(kind == wanted, f"{library} is of {kind}")
    # What the step does of its own, and a sample of which nothing is known.
    head = "forward     7/7   1.1: cycles:P: \n"
    step = f"\t 1 {perf_report.STEP} (/x/vit_hybrid)\n\t 1 main (/x/vit_hybrid)\n\n"
    (own, nothing), _ = perf_report.samples_of(head + step + head)
    require(perf_report.stack_of(own) == [("forward", "phase"), (perf_report.STEP, "vit_hybrid")], f"{perf_report.stack_of(own)}")
    kinds = [perf_report.kind_of(*perf_report.innermost(sample)) for sample in (own, nothing)]
    require(kinds == ["vit_hybrid", "others"], f"kinds are {kinds}")


def test_perf_problems(launches):
    mpi = ["mpirun", "-n", "2", "vit_hybrid", "--profile-steps=2-3"]
    out = launches.refused(PERF, "rank 0 (and 1 other): perf cannot be used on ", 66, command=mpi, FAKE_EVENTS="none")
    require(not list(out.iterdir()) and not launches.log("program"), "the program was run, or something is left")
    launches.refused(PERF, "(No permission to enable cpu-clock:u event.); kernel.perf_event_paranoid is ", 66, FAKE_EVENTS="none")
    # A folder in which nothing was captured takes the next try.
    for code, arguments in ((65, {}), (66, {"FAKE_CODE": "66"})):
        out, _, err = launches.launch(PERF, code=code, FAKE_SCRIPT="none", **arguments)
        require(err == ("profile: the command ended with exit code 66\n" if arguments else "profile: perf took no samples; the steps may "
                        "be beyond those that were done, or too short\n"), f"said is {err}")
        require(not list(out.iterdir()), f"there are {list(out.iterdir())}")
        launches.launch(PERF, out=out)
    launches.refused(PERF, "perf script cannot read ", 74, FAKE_SCRIPT="broken")
    launches.refused(PERF, "there is no perf in PATH (Debian: apt-get install linux-perf)", 66, without="perf")
    launches.refused(["--tool=nsys"], "there is no nsys in PATH (Nsight Systems", 66, without="nsys")
    launches.refused(PERF, "add --profile-steps A-B", 64, command=["vit_hybrid", "--steps=5"])
    launches.launch(PERF, ["vit_hybrid"], VIT_HYBRID_PROFILE_STEPS="2-3")
    launches.refused(PERF, "there is no command; give it after --", 64, command=[])
    launches.refused(PERF, "the command has no word vit_hybrid", 64, command=["mpirun", "train"])
    launches.refused(PERF, "there is no nompirun to be run", 66, command=["nompirun", *mpi[1:]])
    launches.refused(["--frequency=0"], "--frequency is 0; allowed: 1 to 50000", 64)
    launches.refused(["--tool=vtune"], "--help lists the options", 64)
    launches.refused(PERF, "has a comma", 64, out=launches.work / "a,b")
    full = launches.work / "full"
    full.mkdir()
    (full / "mine").write_text("mine")
    launches.refused(PERF, "holds files already; name a new folder", 73, out=full)
    launches.refused(PERF, "name a folder that can be made", 73, out=full / "mine" / "below")
    require((full / "mine").read_text() == "mine", "a file was changed")
    barred = launches.work / "barred"
    barred.mkdir()
    mount = ["unshare", "-rm", "sh", "-c", 'mount -t tmpfs -o ro tmpfs "$0" && exec "$@"', barred]
    if subprocess.run([*mount, "true"], capture_output=True, check=False).returncode == 0:
        launches.refused(PERF, "Read-only file system; name a folder that can be made", 73, out=barred, before=mount)
    else:
        print("skipped: no folder can be made here that may not be written")

    # Two processes that no variable tells apart.
    script = 'SLURM_PROCID=0 "$@" & SLURM_PROCID=0 "$@"; a=$?; wait $!; exit $((a | $?))'
    twice = ["bash", "-c", script, "-", "vit_hybrid", "--profile-steps=2-3"]
    launches.refused(PERF, "two processes take themselves for rank 0", 66, command=twice)

    # A perf that was killed loses its rank alone.
    out, text, _ = launches.launch(PERF, mpi, FAKE_KILLED="yes")
    require(text.startswith("9 samples of processor time (cycles) on 1 rank;"), f"said is\n{text}")
    require(f"perf script cannot read {out}/rank_1.perf.data: incompatible file format" in text, f"said is\n{text}")

    # A run that fails keeps its exit code, and what was captured.
    out, text, err = launches.launch(PERF, mpi, code=75, FAKE_CODE="75")
    require(err == "profile: the command ended with exit code 75; what was captured until then:\n", f"said is {err}")
    _, _, err = launches.launch(PERF, mpi, code=75, FAKE_CODE="75", FAKE_SCRIPT="none")
    require(err == "profile: the command ended with exit code 75\n", f"said is {err}")
    require((out / "rank_1.svg").exists() and "18 samples" in text, f"said is\n{text}")


def test_nsys(launches):
    out, text, err = launches.launch(["--tool=nsys"], ["srun", "-n", "2", "vit_hybrid", "--profile-steps=2-3"])
    require(not err, f"said is\n{err}")
    require({path.name for path in out.iterdir()} == {"rank_0.nsys-rep", "rank_1.nsys-rep", "summary.txt"}, sorted(out.iterdir()))
    rows = [line.split() for line in text.splitlines()]
    # 8 ms of kernels, 1.5 + 0.3 + 0.2 ms of copies: 15 % and 3 % of 10 ms.
    for rank in "01":
        require([rank, "8", "1.5", "0.3", "0.2", "15", "3", "12.5"] in rows, f"rank {rank} is not right in\n{text}")
    require(re.search(r"^void gemm<float, 128>\(Params\) +12 +75$", text, re.M), f"the kernels are not right in\n{text}")
    launches.refused(["--tool=nsys"], "nsys wrote no report; the steps may be beyond", 65, FAKE_CAPTURE="no")
    launches.refused(["--tool=nsys"], "nsys saw no work on a GPU", 65, FAKE_CAPTURE="idle")
    launches.refused(["--tool=nsys"], "a table of nsys stats has times in 'min', not in one of ns, ", 74, FAKE_UNIT="(min)")
    # A report that is damaged loses its rank alone; the others' stay where they have nothing.
    two = ["srun", "-n", "2", "vit_hybrid", "--profile-steps=2-3"]
    out, text, _ = launches.launch(["--tool=nsys"], two, FAKE_KILLED="yes")
    require(re.search(r"^ +0 +8 +1.5 ", text, re.M) and re.search(r"^void gemm<float, 128>\(Params\) +6 +75$", text, re.M) and
            f"\n\nnsys stats cannot read {out}/rank_1.nsys-rep: ERROR: it is damaged\n" in text, f"said is\n{text}")
    out = launches.refused(["--tool=nsys"], "rank_1.nsys-rep: ERROR: it is damaged", 74, command=two, FAKE_KILLED="yes",
                           FAKE_CAPTURE="idle")
    require(len(list(out.iterdir())) == 2, f"there are {list(out.iterdir())}")


def test_launcher(source, work):
    launches = Launches(source, work)
    test_perf_kinds(source)
    test_perf_words(launches)
    test_perf_problems(launches)
    test_nsys(launches)
    test_stop(launches)


def test_stop(launches):
    """Told to stop, it tells the command, and ends as that does; killed, it leaves no command behind."""
    sleeper = launches.fakes / "vit_hybrid"
    sleeper.write_text("#!/bin/sh\ntrap 'echo >$FAKES/ended; exit 75' TERM\nfifos=${PERF_RECORD_CONTROL#fifo:}\necho enable >${fifos%,*}\n"
                       "echo started\nwhile :; do sleep 0.05; done\n")

    def begun(out):
        return subprocess.Popen([sys.executable, launches.script, *PERF, f"--out={launches.work}/{out}", "--", sleeper,
                                 "--profile-steps=2-3"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                start_new_session=True, env={**os.environ, "FAKES": str(launches.fakes),
                                                             "PATH": f"{launches.fakes}:{os.environ['PATH']}"})
    process, ended = begun("killed"), launches.fakes / "ended"
    try:
        require(process.stdout.readline() == "started\n", "the program did not start")
        process.kill()
        process.wait()
        for _ in range(200):
            if ended.exists():
                break
            time.sleep(0.05)
        require(ended.exists(), "the command goes on after its script was killed")
    finally:
        if not ended.exists():
            os.killpg(process.pid, signal.SIGKILL)
    process = begun("stopped")
    try:
        require(process.stdout.readline() == "started\n", "the program did not start")
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=30)
    except subprocess.TimeoutExpired:
        raise Failure("it goes on after SIGTERM") from None
    finally:
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)
    require(process.returncode == 75 and "9 samples" in out, f"it ended with {process.returncode}: {out}{err}")


# ---- the real perf ---------------------------------------------------------------------------------------------------


def test_real_perf(source, program, ranks, launcher, work):
    out, run = Path(work) / "out", Path(work) / "run"
    command = [sys.executable, Path(source) / "launch/profile", "--tool=perf", f"--out={out}", "--", *launcher, str(ranks), program,
               *SMALL, f"--dp={ranks}", "--steps=26", "--profile-steps=5-24", "--embed-dim=96", f"--run-dir={run}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, env={**os.environ, "XDG_CACHE_HOME": f"{work}/cache"},
                          check=False)
    if done.returncode == 66:
        print(f"[skipped] {done.stderr.strip().splitlines()[-1]}")
        sys.exit(77)
    require(done.returncode == 0 and f"profile of steps 5 to 24: captured on {ranks} of {ranks} ranks" in done.stdout,
            f"it ended with {done.returncode}:\n{done.stdout[-600:]}{done.stderr[-1200:]}")
    text = (out / "summary.txt").read_text()
    rows = [line.split() for line in text.splitlines()]
    header = next(line for line in text.splitlines() if line.startswith("% of all samples"))
    header = re.split(r" {2,}", header)
    shares = dict(zip(header[1:], map(float, next(row for row in rows if row and row[0] == "all")[1:])))
    kinds = {row[0]: float(row[-1]) for row in rows if row and row[0] in ("vit_hybrid", "LibTorch", "kernel", "BLAS", "oneDNN")}
    # The phases that perf's samples have, beside the seconds that the program measured on the processor of the same steps.
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    steps = [record for record in records if record["kind"] == "step" and 5 <= record["step"] <= 24]
    seconds = {name: sum(step["seconds"][name] for step in steps) for name in ("forward", "backward", "step")}
    measured = {name: 100 * seconds[name] / seconds["step"] for name in ("forward", "backward")}
    total = int(re.match(r"(\d+) samples", text)[1])
    require(total > 100, f"only {total} samples")
    print(f"{total} samples, phases {shares}, by the program's clocks {measured}, kinds {kinds}")
    require(shares.get("forward", 0) > 10 and shares.get("backward", 0) > shares["forward"], f"phases are {shares}")
    require(shares.get("between steps", 0) < 10, f"phases are {shares}: others than those steps were captured")
    require(sum(v for k, v in shares.items() if k != "all") > 98, f"phases are {shares}")
    require(kinds.get("vit_hybrid", 0) > 1 and kinds.get("LibTorch", 0) > 1, f"kinds are {kinds}")
    counted = 0
    for rank in range(ranks):
        profiles = check_speedscope(out / f"rank_{rank}.speedscope.json")
        counts = check_flame_graph(out / f"rank_{rank}.svg")
        require(sum(profiles.values()) == counts[f"rank {rank}"], f"rank {rank}: {profiles}, {counts[f'rank {rank}']}")
        require(any("Engine::train_step" in name for name in counts), f"rank {rank} has no step in its flame graph")
        counted += counts[f"rank {rank}"]
    require(counted == total, f"{counted} samples in the files, {total} in the summary")


def main():
    what, words = sys.argv[1], sys.argv[2:]
    with CheckedFolder() as work:
        try:
            if what == "control":
                test_control(Runs(words[0], int(words[1]), words[2:], work))
            elif what == "launcher":
                test_launcher(words[0], work)
            else:
                test_real_perf(words[0], words[1], int(words[2]), words[3:], work)
        except Failure as failure:
            print("FAILED:", failure)
            return 1
    print(f"profile {what}: passed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
