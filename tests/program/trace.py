#!/usr/bin/env python3
"""Traces runs (--trace) and holds the files to the rules of the trace-event format and to what the runs did.

    trace.py layouts PROGRAM SHIM RANKS LAUNCHER WORDS...     runs in layouts of RANKS ranks
    trace.py ends    PROGRAM SHIM RANKS LAUNCHER WORDS...     runs that are resumed, stopped, killed, or cannot write; bad options
    trace.py clocks  PROGRAM SHIM RANKS LAUNCHER WORDS...     one rank's clock is shifted by 5 ms, or runs away
    trace.py ranges  PROGRAM SHIM RANKS LAUNCHER WORDS...     what a profiler sees by NVTX

The launcher's words end with the option that takes the number of ranks. SHIM is the library of tests/support/failing_calls.c,
for clocks that of tests/support/shifted_clock.c, for ranges that of tests/support/nvtx_listener.c.
"""

import ctypes
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
from checked_folder import CheckedFolder  # noqa: E402

SMALL = ["--depth=4", "--embed-dim=32", "--generated-samples=64", "--generated-valid-samples=0", "--keep-checkpoints=none",
         "--threads=1", "--device=cpu", "--deterministic", "--lock-renewal=0.3"]
STEPS = 4
SAMPLES, MICRO_BATCH = 16, 2
LAYOUTS = {
    1: [["--recompute=full", "--io-threads=0"]],
    2: [["--tp=2", "--tp-overlap"], ["--pp=2", "--schedule=gpipe", "--recompute=full"]],
    4: [["--dp=2", "--pp=2"], ["--dp=2", "--tp=2", "--zero=0"]],
    8: [["--dp=2", "--tp=2", "--pp=2", "--recompute=full"], ["--dp=2", "--pp=4", "--schedule=gpipe"],
        ["--tp=2", "--pp=4", "--tp-overlap"], ["--tp=4", "--dp=2", "--order=dp-pp-tp"]],
}
SHIFT_NS = 5_000_000
DRIFT_PPM = 200
CLONE_NEWTIME = 0x80


class Failure(Exception):
    pass


def require(holds, what):
    if not holds:
        raise Failure(what)


def nanoseconds(microseconds):
    return round(microseconds * 1000)


class Trace:
    """The events of a file, checked against the format as they are read."""

    def __init__(self, path, num_ranks):
        with open(path, encoding="utf-8") as file:
            content = json.load(file)
        require(set(content) == {"displayTimeUnit", "otherData", "traceEvents"}, f"keys {sorted(content)}")
        self.other = content["otherData"]
        self.num_ranks = num_ranks
        self.names = {}                     # of processes, and of (process, thread)
        self.rows = defaultdict(list)       # by (process, thread): (begin, end, event), in nanoseconds
        self.arrows = defaultdict(lambda: defaultdict(list))  # by id, "s" and "f"
        for event in content["traceEvents"]:
            self.read(event)
        require(set(self.rows) <= set(self.names), "a row has no name")
        self.coordinates = [self.coordinate(rank) for rank in range(num_ranks)]

    def read(self, event):
        require(isinstance(event.get("name"), str) and event["name"], f"no name: {event}")
        require(event["pid"] in range(self.num_ranks) and isinstance(event["tid"], int), f"no such row: {event}")
        row = (event["pid"], event["tid"])
        if event["ph"] == "M":
            if event["name"] == "process_name":
                self.names[event["pid"]] = event["args"]["name"]
            elif event["name"] == "thread_name":
                self.names[row] = event["args"]["name"]
            else:
                require(event["name"] in ("process_sort_index", "thread_sort_index"), f"metadata {event}")
        elif event["ph"] == "X":
            begin, duration = nanoseconds(event["ts"]), nanoseconds(event["dur"])
            require(begin >= 0 and duration >= 0, f"the slice has times {event}")
            require(isinstance(event["cat"], str) and isinstance(event["args"], dict), f"the slice lacks something {event}")
            self.rows[row].append((begin, begin + duration, event))
        else:
            require(event["ph"] in ("s", "f") and isinstance(event["id"], int), f"an event of no known kind {event}")
            require(event["ph"] == "s" or event["bp"] == "e", f"the arrow's end is tied to no slice {event}")
            self.arrows[event["id"]][event["ph"]].append((nanoseconds(event["ts"]), event))

    def coordinate(self, rank):
        found = re.fullmatch(rf"rank {rank} on \S+: dp (\d+) tp (\d+) pp (\d+)", self.names[rank])
        require(found, f"process {rank} is called {self.names[rank]}")
        return {"data": int(found[1]), "tensor": int(found[2]), "pipeline": int(found[3])}

    def slices(self, rank=None, category=None):
        for (process, _), row in self.rows.items():
            if rank in (None, process):
                yield from (slice for slice in row if category in (None, slice[2]["cat"]))

    def operations(self, rank):
        return [slice for slice in self.slices(rank, "operation")]


def check_nesting(trace):
    """Slices of a row lie in each other or apart; those of operations, which are in flight, apart."""
    for row, slices in trace.rows.items():
        open_ends = []
        for begin, end, event in sorted(slices, key=lambda slice: (slice[0], -slice[1])):
            while open_ends and open_ends[-1] <= begin:
                open_ends.pop()
            require(not open_ends or end <= open_ends[-1], f"{event['name']} crosses a slice of {trace.names[row]}")
            require(not open_ends or event["cat"] != "operation", f"{event['name']} lies in a slice of {trace.names[row]}")
            open_ends.append(end)


def check_arrows(trace):
    """Each message has both ends, in the exchanges that say so, and ends after it starts (of two clocks, within what
    they are known by). Returns how many there are."""
    errors = {rank: nanoseconds(clock["error_us"]) for rank, clock in clocks_of(trace).items()}

    def exchange_at(time_, event):
        row = trace.rows[event["pid"], event["tid"]]
        found = [slice[2] for slice in row if slice[0] <= time_ <= slice[1] and slice[2]["args"]["operation"] == "exchange"]
        require(found, f"an arrow's end lies in no exchange: {event}")
        return found

    for ends in trace.arrows.values():
        require(len(ends["s"]) == 1 and len(ends["f"]) == 1, f"an arrow has {len(ends['s'])} starts and {len(ends['f'])} ends")
        (start, source), (end, target) = ends["s"][0], ends["f"][0]
        slack = errors[source["pid"]] + errors[target["pid"]]
        require(end > start - slack, f"an arrow from rank {source['pid']} to {target['pid']} ends {start - end} ns before its start, "
                f"with clocks that are known to {slack} ns")
        sent = [m["bytes"] for e in exchange_at(start, source) for m in e["args"].get("sends", []) if m["to"] == target["pid"]]
        came = [m["bytes"] for e in exchange_at(end, target) for m in e["args"].get("receives", []) if m["from"] == source["pid"]]
        require(set(sent) & set(came), f"rank {source['pid']} sends {sent} bytes, rank {target['pid']} receives {came}")
    messages = sum(len(slice[2]["args"].get("sends", [])) for slice in trace.slices(category="operation"))
    require(messages == len(trace.arrows), f"{messages} messages and {len(trace.arrows)} arrows")
    return messages


def check_groups(trace):
    """A collective is there on all ranks of its group: the same, in the same order, and over nowhere before it has begun
    everywhere (within what the clocks are known by)."""
    slack = nanoseconds(2 * trace.other["clocks"]["error_us"]) + 1
    groups = defaultdict(dict)
    for rank in range(trace.num_ranks):
        for axis in {slice[2]["args"]["axis"] for slice in trace.operations(rank)}:
            own = sorted((s for s in trace.operations(rank) if s[2]["args"]["axis"] == axis), key=lambda s: s[2]["args"]["number"])
            numbers = [slice[2]["args"]["number"] for slice in own]
            require(numbers == list(range(numbers[0], numbers[0] + len(numbers))), f"rank {rank}, {axis}: numbers {numbers}")
            groups[axis, own[0][2]["args"]["group"]][rank] = [s for s in own if s[2]["args"]["operation"] != "exchange"]
    for (axis, lowest), of_ranks in groups.items():
        others = [name for name in ("data", "tensor", "pipeline") if name != axis]
        members = {rank for rank in range(trace.num_ranks)
                   if axis == "world" or all(trace.coordinates[rank][o] == trace.coordinates[lowest][o] for o in others)}
        require(set(of_ranks) == members and lowest == min(members), f"{axis} of {lowest}: {set(of_ranks)}, not {members}")
        keys = ("operation", "bytes", "number", "step")
        lists = [[tuple(slice[2]["args"][key] for key in keys) for slice in own] for own in of_ranks.values()]
        require(all(own == lists[0] for own in lists), f"the ranks of {axis} {lowest} did other operations")
        for same in zip(*of_ranks.values()):
            begun, over = max(slice[0] for slice in same), min(slice[1] for slice in same)
            require(over + slack >= begun or same[0][2]["args"]["operation"] == "broadcast",
                    f"{same[0][2]['name']} {same[0][2]['args']['number']} is over {begun - over} ns before all have begun")
    return len(groups)


def check_work(trace, first, last):
    """Every rank did every step, and every micro-batch forwards and backwards in it, on its stage."""
    micro_batches = SAMPLES // trace.other["layout"]["dp"] // MICRO_BATCH
    for rank in range(trace.num_ranks):
        steps = {event["args"]["step"]: (begin, end) for begin, end, event in trace.slices(rank, "step")}
        require(sorted(steps) == list(range(first, last + 1)), f"rank {rank} has the steps {sorted(steps)}")
        done = Counter()
        for begin, end, event in trace.slices(rank, "phase"):
            if "micro_batch" in event["args"]:
                inside = [step for step, (b, e) in steps.items() if b <= begin and end <= e]
                require(len(inside) == 1, f"{event} is of the steps {inside}")
                require(event["args"]["stage"] == trace.coordinates[rank]["pipeline"], f"rank {rank} has {event}")
                require(event["name"] == f"{event['name'].split()[0]} mb {event['args']['micro_batch']}", f"{event}")
                done[inside[0], event["name"]] += 1
        wanted = {(step, f"{name} mb {mb}"): 1 for step in steps for name in ("forward", "backward") for mb in range(micro_batches)}
        require(done == wanted, f"rank {rank} did {done}")
        for name in ("forward and backward", "gradient reduction", "optimizer"):
            number = sum(event["name"] == name for _, _, event in trace.slices(rank, "phase"))
            require(number == len(steps), f"rank {rank} has {number} slices '{name}' in {len(steps)} steps")


def check_times(trace, run):
    """The slices of rank 0 beside the seconds that the run's records have."""
    records = [json.loads(line) for line in open(run / "metrics.jsonl", encoding="utf-8")]
    seconds = {record["step"]: record["seconds"] for record in records if record["kind"] == "step"}
    for begin, end, event in trace.slices(0, "step"):
        counted = seconds[event["args"]["step"]]
        require(end - begin >= 1e9 * counted["step"], f"{event['name']} has {end - begin} ns, counted are {counted['step']} s")
        for name in ("forward", "backward"):
            sum_ = sum(e - b for b, e, ev in trace.slices(0, "phase") if ev["name"].startswith(name + " mb") and begin <= b and e <= end)
            require(0.5e9 * counted[name] <= sum_ <= 1.01e9 * counted[name] + 1e5, f"{name}: {sum_} ns, counted {counted[name]} s")


def check_bytes(trace, run):
    """Operations and bytes of rank 0 are those that the run counted; all of its steps were traced."""
    counted = json.loads((run / "summary.json").read_text())["communication"]
    for axis in counted:
        if axis["ranks"] == 1:
            continue
        own = [slice[2]["args"] for slice in trace.operations(0) if slice[2]["args"]["axis"] == axis["axis"]]
        traced = {name: {"operations": sum(a["operation"] == name for a in own),
                         "bytes": sum(a["bytes"] for a in own if a["operation"] == name)} for name in {a["operation"] for a in own}}
        require(traced == axis["rank_0"], f"{axis['axis']}: traced {traced}, counted {axis['rank_0']}")
    return sum(axis["ranks"] > 1 for axis in counted)


def check_all(run, num_ranks, first, last, name="trace.json"):
    trace = Trace(run / name, num_ranks)
    require(trace.other["steps"] == [first, last], f"steps {trace.other['steps']}")
    require(trace.other["dropped_events"] == 0, "events are missing")
    check_nesting(trace)
    messages = check_arrows(trace)
    groups = check_groups(trace)
    check_work(trace, first, last)
    check_times(trace, run)
    return trace, messages, groups


class Runs:
    def __init__(self, program, shim, ranks, launcher, work):
        self.program, self.shim, self.ranks, self.launcher, self.work = program, shim, ranks, launcher, Path(work)
        self.number = 0

    def start(self, words, folder=None, environment=None, ranks=None, wrapper=()):
        self.number += 1
        run = Path(folder) if folder else self.work / f"run{self.number}"
        command = self.launcher + [str(ranks or self.ranks)] if self.launcher else []
        command += [*wrapper, self.program, *SMALL, f"--steps={STEPS}", f"--global-batch-size={SAMPLES}",
                    f"--micro-batch-size={MICRO_BATCH}", f"--run-dir={run}", *words]
        return run, subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                     env={**os.environ, "XDG_CACHE_HOME": str(self.work / "cache"), **(environment or {})})

    def finish(self, words, code=0, **arguments):
        run, process = self.start(words, **arguments)
        out, err = process.communicate(timeout=120)
        require(process.returncode == code, f"{' '.join(words)} ended with {process.returncode}, not {code}: {err[-600:]}")
        return run, out, err


def test_layouts(runs):
    for layout in LAYOUTS[runs.ranks]:
        run, out, _ = runs.finish([*layout, f"--trace=steps=1-{STEPS}"])
        line = re.search(r"^trace of steps 1 to 4: (\S+), (\d+) events of (\d+) ranks?, [\d.]+ [KMG]?i?B(; all of one clock)?$", out, re.M)
        require(line and line[1] == str(run / "trace.json") and int(line[3]) == runs.ranks, f"no line of the trace in\n{out}")
        require((line[4] is not None) == (runs.ranks > 1), "the line tells of clocks")
        trace, messages, groups = check_all(run, runs.ranks, 1, STEPS)
        axes = check_bytes(trace, run)
        stages = trace.other["layout"]["pp"]
        require(messages == 2 * (stages - 1) * STEPS * SAMPLES // MICRO_BATCH * trace.other["layout"]["tp"], f"{messages} messages")
        for rank in range(runs.ranks):
            waits = sum(event["name"] == "data wait" for _, _, event in trace.slices(rank, "input"))
            reads = trace.coordinates[rank]["pipeline"] in (0, stages - 1)
            require((waits > 0) == reads, f"rank {rank} has {waits} waits for data")
        print(f"{' '.join(layout)}: {line[2]} events, {messages} messages, {axes} axes, {groups} groups, clocks within "
              f"{trace.other['clocks']['error_us']:.1f} us")
    # Some of the steps, with validations and checkpoints beside them.
    run, _, _ = runs.finish(["--steps=6", "--trace=steps=2-5", "--generated-valid-samples=4", "--keep-checkpoints=2",
                             "--checkpoint-every=2", f"--global-batch-size={SAMPLES}", "--checkpoint-async"])
    trace = Trace(run / "trace.json", runs.ranks)
    check_nesting(trace)
    check_arrows(trace)
    check_groups(trace)
    for rank in range(runs.ranks):
        steps = sorted(event["args"]["step"] for _, _, event in trace.slices(rank, "step"))
        require(steps == [2, 3, 4, 5], f"rank {rank} has the steps {steps}")
        # The second save waits for the first one to be written; it may be written itself after the trace.
        saves = Counter(event["name"] for _, _, event in trace.slices(rank, "checkpoint"))
        require(saves["checkpoint save"] == 2 and saves["checkpoint write"] in (1, 2), f"rank {rank} has {saves}")


def stopped(runs, steps):
    """A run that is asked to stop after its fifth step."""
    run, process = runs.start(["--steps=100000", f"--trace={steps}"])
    deadline = time.time() + 60
    while not (run / "metrics.jsonl").exists() or '"step":5,' not in (run / "metrics.jsonl").read_text():
        require(time.time() < deadline and process.poll() is None, "the run does not come to step 5")
        time.sleep(0.05)
    process.send_signal(signal.SIGUSR1)
    _, err = process.communicate(timeout=60)
    require(process.returncode == 75, f"the run that was stopped ended with {process.returncode}: {err}")
    return run, err


def test_ends(runs):
    run, _, _ = runs.finish(["--keep-checkpoints=2", "--steps=3", "--trace=steps=2"])
    check_all(run, runs.ranks, 2, 2)
    first = (run / "trace.json").read_bytes()
    resumed = ["--keep-checkpoints=2", "--resume=latest"]
    _, out, _ = runs.finish([*resumed, "--steps=5", "--trace=steps=1-2"], folder=run)
    require("no trace: steps 1 to 2 were done before, and the run goes on after step 3" in out, f"nothing is said in\n{out}")
    runs.finish([*resumed, "--steps=8", "--trace=steps=2-7"], folder=run)
    check_all(run, runs.ranks, 6, 7, "trace-2.json")
    require((run / "trace.json").read_bytes() == first, "the first trace has changed")

    for steps, why in (("steps=10-5", "is 'steps=10-5'; allowed: none, or a range steps=A-B, with 1 <= A <= B"),
                       ("steps=3-5", "steps=3-5 is beyond the run, which ends with step 4; allowed are steps 1 to 4")):
        refused, _, err = runs.finish([f"--trace={steps}"], code=64)
        require(err.count("vit_hybrid") == 1 and why in err, f"{steps} is refused with\n{err}")
        require(not refused.exists(), f"{steps} leaves {refused}")

    # A file that cannot be made costs the trace and nothing else.
    faulty = {"LD_PRELOAD": runs.shim, "VIT_HYBRID_TEST_FAULT": "0 create 1 28"}
    run, _, err = runs.finish(["--trace=steps=2-3"], environment=faulty)
    require(re.search(r"warning: the trace of steps 2 to 3 is lost, and training goes on: cannot create '\S+trace.json': No space",
                      err), f"said is\n{err}")
    require((run / "summary.json").exists() and not list(run.glob("trace*")), "something is lost, or half a file is left")

    # A rank that is killed before the file has its name leaves none of that name, and the next start removes the rest.
    killed = {"LD_PRELOAD": runs.shim, "VIT_HYBRID_TEST_FAULT": "0 rename 3 0"}  # after two of the checkpoint of step 1
    run, process = runs.start(["--keep-checkpoints=2", "--checkpoint-every=1", "--trace=steps=1"], environment=killed)
    process.communicate(timeout=120)
    require(process.returncode != 0 and not (run / "trace.json").exists(), "the run was not killed before its trace")
    require(list(run.glob("trace.json.*.partial")), f"the run was killed elsewhere: {list(run.iterdir())}")
    runs.finish(["--keep-checkpoints=2", "--resume=auto"], folder=run)
    require(not list(run.glob("trace*")), "half a file is left")

    # What was traced before a run is stopped is there, and where nothing was that is said.
    run, _ = stopped(runs, "steps=2-100000")
    last = json.loads((run / "metrics.jsonl").read_text().strip().splitlines()[-1])["step"]
    check_all(run, runs.ranks, 2, last)
    run, err = stopped(runs, "steps=99999")
    require(re.search(r"warning: no trace: the run was stopped after step \d+, before step 99999", err), f"said is\n{err}")
    require(not (run / "trace.json").exists(), "there is a trace of no steps")


def clocks_of(trace):
    return {clock["rank"]: clock for clock in trace.other["clocks"]["ranks"]}


def test_clocks(runs):
    shifted = runs.ranks - 1
    words = ["--pp=2", f"--dp={runs.ranks // 2}", f"--trace=steps=1-{STEPS}"]

    def check_offsets(what, run, drift_ppm=0):
        trace, messages, _ = check_all(run, runs.ranks, 1, STEPS)
        for rank, clock in clocks_of(trace).items():
            wanted = SHIFT_NS / 1000 if rank == shifted else 0
            if rank != shifted or drift_ppm == 0:
                require(abs(clock["offset_us"] - wanted) <= clock["error_us"] + 0.001, f"{what}, rank {rank}: {clock}, not {wanted} us")
            require(clock["error_us"] < SHIFT_NS / 2000, f"{what}, rank {rank}: {clock} is not worth much")
        print(f"{what}: {messages} arrows, rank {shifted} {clocks_of(trace)[shifted]}")
        return trace

    def shim(drift):
        return {"LD_PRELOAD": runs.shim, "VIT_HYBRID_TEST_CLOCK": f"{shifted} {SHIFT_NS} {drift}"}

    run, _, _ = runs.finish(words, environment=shim(0))
    check_offsets("shifted by the shim", run)

    # Two seconds of steps, so that the drift is more than the error.
    run, out, _ = runs.finish([*words[:2], "--steps=200", "--trace=steps=1-200"], environment=shim(DRIFT_PPM))
    trace = Trace(run / "trace.json", runs.ranks)
    check_nesting(trace)
    check_arrows(trace)
    check_groups(trace)
    seconds = max(end for _, end, _ in trace.slices(0, "step")) / 1e9
    drift = clocks_of(trace)[shifted]["drift_us_per_s"]
    bound = 2 * trace.other["clocks"]["error_us"] / seconds
    require(abs(drift - DRIFT_PPM) <= bound + 0.01 * DRIFT_PPM and bound < DRIFT_PPM / 2,
            f"a drift of {drift} us/s in {seconds} s, not {DRIFT_PPM} within {bound}")
    print(f"drifting: {drift:.1f} us/s, within {bound:.1f}")

    # The same in a time namespace, where that may be made.
    wrapper = [sys.executable, __file__, "in-namespace"]
    if subprocess.run([*wrapper, "0", "true"], capture_output=True, check=False).returncode != 0:
        print("[skipped] a time namespace: it may not be made here")
        return
    run, _, _ = runs.finish(words, wrapper=[*wrapper, str(shifted)])
    check_offsets("in a time namespace", run)


def test_ranges(runs):
    ranges = runs.work / "ranges"
    run, _, err = runs.finish(["--tp=2", "--steps=2"], environment={"NVTX_INJECTION64_PATH": runs.shim,
                                                                   "VIT_HYBRID_TEST_RANGES": str(ranges)})
    require("NVTX" not in err, f"said is\n{err}")
    for rank in range(runs.ranks):
        found, open_of_threads = Counter(), defaultdict(list)
        for line in Path(f"{ranges}.{rank}").read_text().splitlines():
            thread, end, name = re.fullmatch(r"(\w+) (?:(<)|> (.+))", line).groups()
            open_ranges = open_of_threads[thread]
            if end:
                open_ranges.pop()
                continue
            found[name] += 1
            parents = {"data copy in": "forward and backward", "forward": "forward and backward", "forward and backward": "step",
                       "optimizer": "step"}
            parent = parents.get(re.sub(r"( mb)? \d+$", "", name))
            require(parent is None or open_ranges[-1].startswith(parent), f"rank {rank}: {name} lies in {open_ranges}")
            open_ranges.append(name)
        require(not any(open_of_threads.values()), f"rank {rank}: not ended are {open_of_threads}")
        wanted = {"step 1": 1, "step 2": 1, "optimizer": 2, "gradient reduction": 2}
        wanted |= {f"data copy in {step}": SAMPLES // MICRO_BATCH for step in (1, 2)}
        wanted |= {f"{name} mb {mb}": 2 for name in ("forward", "backward") for mb in range(SAMPLES // MICRO_BATCH)}
        require(all(found[name] == number for name, number in wanted.items()), f"rank {rank} has {found}, not {wanted}")
        counted = json.loads((run / "summary.json").read_text())["communication"]
        sums = {axis["axis"]: axis["rank_0"]["all_reduce"]["operations"] for axis in counted if "all_reduce" in axis["rank_0"]}
        # In the world there are others before the first and after the last step.
        require(found["all_reduce tensor"] == sums["tensor"], f"rank {rank} has {found}, counted are {sums}")
        require(found["wait all_reduce tensor"] > 0, f"rank {rank} has no waits in {found}")


def run_in_namespace(rank, command):
    """Becomes the command; on this rank in a time namespace of its own, which a process enters when it becomes another."""
    if int(os.environ.get("OMPI_COMM_WORLD_RANK", os.environ.get("PMI_RANK", "0"))) == rank:
        if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWTIME) != 0:
            sys.exit(f"unshare: {os.strerror(ctypes.get_errno())}")
        with open("/proc/self/timens_offsets", "w", encoding="ascii") as offsets:
            offsets.write(f"monotonic 0 {SHIFT_NS}")
    os.execvp(command[0], command)


def main():
    if sys.argv[1] == "in-namespace":
        run_in_namespace(int(sys.argv[2]), sys.argv[3:])
    what, program, shim, ranks, launcher = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), sys.argv[5:]
    with CheckedFolder() as work:
        try:
            {"layouts": test_layouts, "ends": test_ends, "clocks": test_clocks, "ranges": test_ranges}[what](Runs(program, shim, ranks, launcher, work))
        except Failure as failure:
            print("FAILED:", failure)
            return 1
    print(f"trace {what}: passed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
