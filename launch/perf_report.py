"""What perf recorded of each rank: samples with their stacks, the phase that each was taken in, and what is written of them.

    samples = samples_of(perf_script_text)
    lines = summary({0: "out/rank_0.perf.data"}, "out")    # writes the files, returns the tables

The program calls its main thread what it is in the middle of ("forward"), and perf notes when a name changes: so the phase of
every sample is known, also where its stack has no callers, as in libraries that keep no account of their stacks (MKL).
"""
import collections
import json
import os
import re
import subprocess

from flame_graph import Box, write_svg
from messages import shortened, shown
from tables import table_lines

ENDING = "perf.data"
MOST_FUNCTIONS = 15
LONGEST_NAME = 60
SCHEMA = "https://www.speedscope.app/file-format-schema.json"

# Names of threads (15 characters) and what they stand for, in the order of the table.
PHASES = {"data wait": "data wait", "data copy in": "data copy", "forward": "forward", "backward": "backward",
          "forward and bac": "between micro-batches", "gradient reduct": "gradient reduction", "optimizer": "optimizer",
          "step": "rest of the step",
          "validation": "validation", "checkpoint save": "checkpoint", "checkpoint end": "checkpoint", "read": "reading ahead",
          "checkpoint writ": "checkpoint, behind"}
OF_OTHER_THREADS = {"read", "checkpoint writ"}
ELSE = "between steps"
# What a sample is of: the first that fits its innermost function's symbol and library.
KINDS = [("kernel", r"", r"^\[(?!unknown\]|JIT\])|\.ko(\.\w+)?$"),
         ("BLAS", r"^(mkl_|MKL|cblas_|sgemm|dgemm)", r"^lib(mkl|openblas|blis|cublas)"),
         ("oneDNN", r"^(dnnl|zendnn)", r"^(perf-\d+\.map|//anon|\[JIT\].*)$|^libdnnl"),
         ("vit_hybrid", r"", r"^vit_hybrid"),
         ("LibTorch", r"", r"^lib(torch|c10)"),
         ("MPI and NCCL", r"", r"^(lib(mpi|open-|pmix|ucp|ucs|uct|ucm|fabric|psm|prrte|hwloc|event|nccl|pmi)|mca_)"),
         ("HDF5 and zlib", r"", r"^lib(hdf5|sz|aec|z)[_.]"),
         ("OpenMP", r"", r"^lib(gomp|iomp|omp)"),
         ("CUDA", r"", r"^lib(cuda|cudart|cudnn|nv)"),
         ("C library", r"", r"^(libc|libm|libstdc\+\+|libgcc_s|libpthread|libdl|librt|ld-linux[^/]*|ld)[-.]|^ld-")]
KINDS = [(name, re.compile(symbol) if symbol else None, re.compile(library)) for name, symbol, library in KINDS]
JIT = "code that oneDNN generated"
STEP = "vit_hybrid::train::Trainer::train_step"  # the callers of which are the same for all
ROOTS = {"_start", "clone", "__clone", "clone3", "__clone3", "__GI___clone3", "start_thread"}
UNKNOWN_CALLERS = "callers unknown"


class Unreadable(Exception):
    """One line for the user; `is_empty`: there are no samples."""

    def __init__(self, text, is_empty=False):
        super().__init__(text)
        self.is_empty = is_empty


# ---- reading ---------------------------------------------------------------------------------------------------------


def printed(*command):
    """What a command prints of the file that is its last word. Raises Unreadable."""
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", check=False)
    except OSError as error:
        raise Unreadable(f"{command[0]} cannot be run: {error.strerror}") from error
    if done.returncode != 0:
        said = [line.strip() for line in (done.stderr or done.stdout).splitlines() if line.strip()]
        said = said or [f"exit code {done.returncode}"]
        raise Unreadable(f"{' '.join(command[:2])} cannot read {shown(command[-1])}: {shown(said[-1])}")
    return done.stdout


class Sample:
    """`frames`: (function, library) from the outermost caller that is known to the innermost function; with `has_callers` they are
    all there. `is_main`: of the main thread."""

    def __init__(self, thread, is_main, phase, event):
        self.thread, self.is_main, self.phase, self.event = thread, is_main, phase, event
        self.frames, self.has_callers = [], False


HEADER = re.compile(r"\s*(.*?)\s+(\d+)/(\d+)\s+[\d.]+:\s+(.*)$")
RENAMED = re.compile(r"PERF_RECORD_COMM(?: exec)?: (.*):(\d+)/(\d+)$")
LOST = re.compile(r"PERF_RECORD_LOST.* lost (\d+)")
FRAME = re.compile(r"\t\s*[0-9a-f]+ (.*) \((.*)\)$")


def phase_of(name, is_main, of_main):
    """By the name of a sample's thread, and of the main thread at that time: other threads work for it, but for some."""
    key = name if is_main or name in OF_OTHER_THREADS else of_main
    return PHASES.get(key, ELSE)


def samples_of(text):
    """([Sample], number of lost ones) of what perf script prints, in order of time."""
    samples, lost, main_names, frames = [], 0, {}, None
    for line in text.splitlines():
        if line.startswith("\t"):
            found = FRAME.match(line.replace(" (deleted))", ")"))
            if frames is not None and found:
                frames.append((found[1], os.path.basename(found[2])))
            continue
        frames = None
        found = HEADER.match(line)
        if not found:
            continue
        name, process, thread, rest = found.groups()
        renamed = RENAMED.match(rest)
        if renamed:
            if renamed[2] == renamed[3]:
                main_names[renamed[2]] = renamed[1]
        elif rest.startswith("PERF_RECORD_"):
            lost += int(LOST.match(rest)[1]) if LOST.match(rest) else 0
        else:
            is_main = process == thread
            if is_main:
                main_names[process] = name
            phase = phase_of(name, is_main, main_names.get(process, ""))
            samples.append(Sample(thread, is_main, phase, rest.split(":")[0].strip()))
            frames = samples[-1].frames
    for sample in samples:
        sample.frames, sample.has_callers = known_frames(sample.frames)
    return samples, lost


def known_frames(inner_first):
    """(from the caller in the step to the called, whether it is the step's), or the step itself in what it does of its own. What
    stands behind the first caller that is not known is noise."""
    frames = []
    for function, library in inner_first:
        if function == STEP:
            return frames[::-1] or [(function, library)], True
        if frames and function == "[unknown]" and library == "[unknown]":
            break
        frames.append((function, library))
    return frames[::-1], bool(frames) and frames[-1][0] in ROOTS


def kind_of(function, library):
    for name, symbol, of_library in KINDS:
        if (symbol and symbol.search(function)) or of_library.search(library):
            return name
    return "others"


def name_of(function, library):
    if function != "[unknown]":
        return function
    return JIT if kind_of(function, library) == "oneDNN" else f"[{library.strip('[]')}]"


# ---- writing ---------------------------------------------------------------------------------------------------------


def stack_of(sample):
    """(name, kind) of its phase and its frames, as the flame graph and speedscope show them."""
    head = [sample.phase] + ([] if sample.is_main else ["other threads"]) + ([] if sample.has_callers else [UNKNOWN_CALLERS])
    return [(name, "phase") for name in head] + [(name_of(*frame), kind_of(*frame)) for frame in sample.frames]


def speedscope(samples, name):
    """A file of speedscope's format: a profile a thread, in which each sample weighs 1."""
    indices, profiles = {}, {}
    for sample in samples:
        key = (not sample.is_main, sample.thread)
        stack = [indices.setdefault(frame, len(indices)) for frame in stack_of(sample)]
        profiles.setdefault(key, []).append(stack)
    return {"$schema": SCHEMA, "name": name, "exporter": "vit_hybrid launch/profile", "activeProfileIndex": 0,
            "shared": {"frames": [{"name": function, "file": kind} for function, kind in indices]},
            "profiles": [{"type": "sampled", "name": f"{name}, {'thread ' + thread if is_other else 'main thread'}", "unit": "none",
                          "startValue": 0, "endValue": len(stacks), "samples": stacks, "weights": [1] * len(stacks)}
                         for (is_other, thread), stacks in sorted(profiles.items())]}


def write_rank(samples, rank, folder):
    path = os.path.join(folder, f"rank_{rank}")
    with open(f"{path}.speedscope.json", "w", encoding="utf-8") as file:
        json.dump(speedscope(samples, f"rank {rank}"), file)
    root = Box(f"rank {rank}")
    for sample in samples:
        root.add(stack_of(sample), 1)
    write_svg(f"{path}.svg", root, f"Rank {rank}: {len(samples)} samples of processor time ({samples[0].event})")


def read_rank(path):
    return samples_of(printed("perf", "script", "--no-inline", "--show-task-events", "--show-lost-events",
                              "-F", "comm,pid,tid,time,event,ip,sym,dso", "-i", path))


# ---- tables ----------------------------------------------------------------------------------------------------------


def percent(count, total):
    return round(100 * count / total, 1) if total else None


def innermost(sample):
    return sample.frames[-1] if sample.frames else ("[unknown]", "[unknown]")


def kinds_by_phase(samples):
    """Rows of the kinds, with a column of each phase and of all, in per cent of all samples."""
    counts = collections.Counter((kind_of(*innermost(sample)), sample.phase) for sample in samples)
    by_kind = collections.Counter(kind_of(*innermost(sample)) for sample in samples)
    by_phase = collections.Counter(sample.phase for sample in samples)
    phases = [phase for phase in [*dict.fromkeys(PHASES.values()), ELSE] if percent(by_phase[phase], len(samples))]
    rows = [[kind, *(percent(counts[kind, phase], len(samples)) for phase in phases), percent(count, len(samples))]
            for kind, count in by_kind.most_common()]
    rows.append(["all", *(percent(by_phase[phase], len(samples)) for phase in phases), 100.0])
    return table_lines(["% of all samples", *phases, "all"], rows)


def functions_by_share(samples):
    own, within = collections.Counter(), collections.Counter()
    for sample in samples:
        stack = [(name_of(*frame), kind_of(*frame)) for frame in sample.frames or [innermost(sample)]]
        own[stack[-1]] += 1
        within.update(set(stack))
    rows = [[shortened(name, LONGEST_NAME), kind, percent(count, len(samples)), percent(within[name, kind], len(samples))]
            for (name, kind), count in own.most_common(MOST_FUNCTIONS)]
    return table_lines(["function", "of", "% itself", "% with what it calls"], rows)


def summary(reports, folder):
    """Writes flame graphs and speedscope files into the folder; returns the tables. `reports`: {rank: path} of perf.data. Raises
    Unreadable, OSError."""
    samples_by_rank, all_lost, unreadable = {}, {}, []
    for rank, path in reports.items():
        try:
            samples_by_rank[rank], all_lost[rank] = read_rank(path)
        except Unreadable as error:  # of a perf that was killed
            unreadable.append(error)
            continue
        if samples_by_rank[rank]:
            write_rank(samples_by_rank[rank], rank, folder)
    everything = [sample for samples in samples_by_rank.values() for sample in samples]
    if not everything:
        raise unreadable[0] if unreadable else Unreadable("perf took no samples", is_empty=True)
    events = sorted({sample.event for sample in everything})
    ranks = len(samples_by_rank)
    lines = [f"{len(everything)} samples of processor time ({', '.join(events)}) on {ranks} rank{'s' if ranks > 1 else ''}; "
             "who waits without a processor has none", "", *kinds_by_phase(everything), "", *functions_by_share(everything)]
    if len(samples_by_rank) > 1:
        kinds = [kind for kind, _ in collections.Counter(kind_of(*innermost(s)) for s in everything).most_common()]
        rows = []
        for rank, samples in samples_by_rank.items():
            of_rank = collections.Counter(kind_of(*innermost(sample)) for sample in samples)
            rows.append([rank, len(samples), *(percent(of_rank[kind], len(samples)) for kind in kinds)])
        lines += ["", *table_lines(["rank", "samples", *(f"% {kind}" for kind in kinds)], rows)]
    empty = [str(rank) for rank, samples in samples_by_rank.items() if not samples]
    if empty:
        lines += ["", f"no samples of rank {', '.join(empty)}"]
    lines += [line for error in unreadable for line in ("", str(error))]
    if any(all_lost.values()):
        lines += ["", f"perf lost {sum(all_lost.values())} samples, which it could not write in time: lower --frequency"]
    return lines
