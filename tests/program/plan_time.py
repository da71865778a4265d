#!/usr/bin/env python3
"""Times by --machine: those of the files that come with the program, in plan and in a run, and what is refused.

    plan_time.py PROGRAM REPOSITORY calibrated|shipped LAUNCHER WORDS...

`calibrated` measures this machine first, which takes a minute, and plans by that. The launcher's words end with the option
that takes the number of ranks.
"""
import fcntl
import json
import os
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
from checked_folder import CheckedFolder  # noqa: E402

USAGE, BAD_DATA, MISSING, CANNOT_CREATE = 64, 65, 66, 73
PHASES = {"data_wait", "forward", "backward", "reduce", "optimizer", "waiting", "step"}
failures = []


def check(what, holds):
    if not holds:
        failures.append(what)
        print(f"FAILED: {what}")


def run(*command):
    return subprocess.run([str(word) for word in command], capture_output=True, text=True)


def shipped_files(program, machines):
    """Every file plans all layouts of 64 ranks, the fastest first, and says where its figures are from."""
    for path in sorted(machines.glob("*.json")):
        machine = json.loads(path.read_text())
        one = machine["populations"][0]
        figures = [machine, machine["memory"], machine["between_nodes"], *one["messages"].values(),
                   *(table for tables in one["types"].values() for table in tables.values())]
        check(f"{path.name}: a figure has no source", all(figure.get("source") for figure in figures))
        for kind, table in one["messages"].items():
            seconds = [size / rate for size, rate in zip(table["axes"]["bytes"], table["rates"])]
            check(f"{path.name}: 64 KiB of {kind} take but for their latency a 16th of 1 MiB", seconds[2] > 1.5 * seconds[4] / 16)
        for precision in list(machine["populations"][0]["types"])[-1:]:
            done = run(program, "plan", "--machine", path, "--device", machine["device"], "--precision", precision, "--data",
                       "synthetic", "--preset", "weather-d12", "--global-batch-size", 256, "--ranks", 64, "--ranks-per-node",
                       machine["populations"][0]["ranks"], "--json")
            check(f"{path.name}: {done.stderr}", done.returncode == 0)
            layouts = json.loads(done.stdout)
            steps = [layout["seconds_per_step"]["step"] for layout in layouts]
            check(f"{path.name}: {len(steps)} layouts, the fastest first", len(steps) > 10 and steps == sorted(steps))
            check(f"{path.name}: no time is shorter than the arithmetic's", all(
                256 * 1.443e12 / 64 / step < 2e15 for step in steps))


def changed(machine, change):
    """The text of a file with one thing changed."""
    copy = json.loads(json.dumps(machine))
    change(copy)
    return json.dumps(copy)


def refusals(program, folder, machine):
    def message(text, *options):
        path = folder / "bad.json"
        path.write_text(text)
        done = run(program, "plan", "--machine", path, "--device", "cpu", "--dp", 1, *options)
        check(f"one line is said: {done.stderr}", len(done.stderr.strip().splitlines()) <= 2 and not done.stdout)
        return done.returncode, done.stderr

    for text, expected in (
            ("", "ends before its JSON does"), ("{]", "is no JSON"), ('{"cores": 1e999}', "a number that is too large"), ("[1]", "does not begin with"),
            (changed(machine, lambda m: m.pop("cores")), "cores is missing"),
            (changed(machine, lambda m: m["memory"].update(bytes=0)), "memory.bytes is 0, not a number from 1 to"),
            (changed(machine, lambda m: m["populations"][0]["types"]["fp32"]["stream"]["rates"].__setitem__(0, -1)),
             "types.fp32.stream.rates is -1, not a number from 1 to"),
            (changed(machine, lambda m: m["populations"][0]["types"]["fp32"]["stream"]["rates"].append(1e9)),
             "types.fp32.stream.rates are")):
        code, said = message(text)
        check(f"{expected}: {code}, {said}", code == BAD_DATA and expected in said)
    code, said = message(changed(machine, lambda m: m.update(device="cuda")))
    check(f"another device: {code}, {said}", code == USAGE and "computes on 'cuda'" in said)
    code, said = message(json.dumps(machine), "--precision", "fp16")
    check(f"another precision: {code}, {said}", code == USAGE and "no rates of fp16" in said)
    words = (program, "plan", "--machine", folder / "alone.json", "--device", "cpu", "--dp", 48, "--json", "--data", "synthetic",
             "--global-batch-size", 48)
    (folder / "alone.json").write_text(json.dumps(machine))
    check("ranks are on nodes as the file has them", json.loads(run(*words).stdout)["nodes"] == 2)
    fullest = json.loads(run(*words).stdout)["fullest_rank"]
    whole = 24 * (fullest["bytes"] + fullest["libraries"] + (140 << 20))
    for share, options, fits in ((1.001, (), True), (0.999, (), False), (0.999, ("--memory-gib", 1e6), True)):
        (folder / "alone.json").write_text(changed(machine, lambda m: m.update(memory={"bytes": share * whole})))
        check(f"{share} of the memory of 24 ranks, {options}", json.loads(run(*words, *options).stdout)["fits"] is fits)
    without = json.loads(run(*words, "--keep-checkpoints", "none").stdout)["fullest_rank"]
    check("HDF5's cache is counted where checkpoints are kept, as in a run",
          fullest["library_classes"]["hdf5"] > 0 == without["library_classes"]["hdf5"])
    said = run(*words, "--ranks-per-node", 48).stderr
    check(f"threads are a share of the cores, as in a run: {said}", "here it is 48 ranks a node with 6 threads" in said)
    check(f"another machine's processor is told: {said}", "kernels for this one's processor" in said)
    small = [*words[:4], "--data", "synthetic", "--ranks", 4, "--preset", "vit-ti16", "--global-batch-size", 256]
    fastest = json.loads(run(*small, "--json").stdout)[0]["fullest_rank"]
    (folder / "alone.json").write_text(changed(machine, lambda m: m.update(
        memory={"bytes": 4 * (0.9 * (fastest["bytes"] + fastest["libraries"]) + (140 << 20))})))
    listed = run(*small).stdout
    check(f"what lets the fastest fit is told:\n{listed}", "better than the first, fits with --recompute none --micro-batch-size" in listed)
    (folder / "alone.json").write_text(changed(machine, lambda m: m.pop("between_nodes")))
    check("of a network that is not known on one", json.loads(run(*words).stdout)["nodes"] == 1)
    done = run(*words, "--ranks-per-node", 24)
    check(f"a network is not free: {done.returncode}, {done.stderr}",
          done.returncode == USAGE and "does not know what joins nodes" in done.stderr)
    done = run(program, "plan", "--machine", folder / "none.json", "--dp", 1)
    check(f"no file: {done.returncode}, {done.stderr}", done.returncode == MISSING and "none.json" in done.stderr)


def in_a_run(program, folder, machine, launcher):
    out = folder / "run"
    done = run(*launcher, 2, program, "--machine", machine, "--dp", 2, "--steps", 4, "--run-dir", out)
    check(f"the run: {done.stderr}", done.returncode == 0)
    time = json.loads((out / "summary.json").read_text())["time"]
    check(f"predicted and measured by phase: {time}",
          PHASES <= set(time["predicted"]) and PHASES == set(time["measured"]) and
          all(value >= 0 for value in time["measured"].values()) and time["measured"]["step"] > 0)
    check("the start says what is predicted", "as --machine predicts it: a step" in done.stdout)
    check("the end says both", "time of a step: " in done.stdout and "most differs" in done.stdout)
    plan = json.loads(run(program, "plan", "--machine", machine, "--dp", 2, "--threads", 1, "--ranks", 2, "--json").stdout)
    check(f"plan says what the run says: {plan['seconds_per_step']}", plan["seconds_per_step"] == time["predicted"])
    done = run(*launcher, 2, program, "--machine", folder / "none.json", "--dp", 2, "--run-dir", folder / "other")
    check(f"a run without its file: {done.returncode}", done.returncode == MISSING and not (folder / "other").exists())


def calibrated(program, folder, launcher):
    path = folder / "machine.json"
    def started(ranks, *options, out=path):
        return subprocess.Popen([str(word) for word in (*launcher, ranks, program, "calibrate", "--out", out, "--precision", "fp32",
                                                        "--threads", 1, *options)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    for together in ((1, 2), (2,)):  # two at one time keep each other's figures; a second time these are replaced
        for one in [started(ranks, "--storage", folder) for ranks in together]:
            said = one.communicate()[1]
            check(f"calibrate: {said}", one.returncode == 0)
            check(f"it is told that another one runs: {said}", ("went to something else" in said) or len(together) == 1)
    populations = json.loads(path.read_text())["populations"]
    check("a population for each number of ranks", sorted(one["ranks"] for one in populations) == [1, 2])
    populations.sort(key=lambda one: one["ranks"])
    check("messages where there are two ranks", not populations[0]["messages"] and len(populations[1]["messages"]) == 4)
    check("reading has a rate, and its file is gone", all(one["reading_bytes_per_s"] > 0 for one in populations)
          and not list(folder.glob("*.h5")))
    check(f"a layer costs something beside its kernels: {populations}", all(0 <= one["operation_s"] < 1e-3 for one in populations))
    measured = json.loads(path.read_text())
    link = folder / "link.json"
    link.symlink_to(path)
    descriptor = os.open(folder, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)  # as another one that is about to write
    waiting = started(1, "--storage", "none", out=link)
    while waiting.poll() is None and f":{os.stat(folder).st_ino} " not in "".join(
            line for line in Path("/proc/locks").read_text().splitlines() if "->" in line):
        time.sleep(0.1)
    written = json.loads(path.read_text())
    written["populations"] = [dict(written["populations"][0], threads=7)]
    path.write_text(json.dumps(written))
    os.close(descriptor)
    said = waiting.communicate()[1]
    check(f"one waits for another that writes, and keeps its figures: {said}", waiting.returncode == 0 and link.is_symlink() and
          sorted(one["threads"] for one in json.loads(path.read_text())["populations"]) == [1, 7])
    path.write_text(changed(measured, lambda m: m.update(machine="another")))
    done = run(program, "calibrate", "--out", path, "--precision", "fp32", "--threads", 1)
    check(f"another machine's file stays: {done.stderr}", done.returncode == USAGE and "is of another machine" in done.stderr)
    done = run(program, "calibrate", "--out", folder / "none/machine.json", "--precision", "fp32", "--threads", 1)
    check(f"a file that cannot be written is told before anything is measured: {done.stdout}, {done.stderr}",
          done.returncode == CANNOT_CREATE and "none/machine.json" in done.stderr and "measur" not in done.stdout)
    loop = folder / "loop"
    loop.symlink_to(loop)
    for out, code, expected in ((loop, CANNOT_CREATE, "Too many levels"), ("x" * 300, CANNOT_CREATE, "File name too long"),
                                (folder, CANNOT_CREATE, "--out is"), ("", USAGE, "--out is empty")):
        done = run(program, "calibrate", "--out", out, "--precision", "fp32", "--threads", 1)
        check(f"--out '{out}': {done.returncode}, {done.stderr}",
              done.returncode == code and expected in done.stderr and "measur" not in done.stdout)
    path.write_text(json.dumps(measured))
    return path


def main():
    program, repository, kind, launcher = sys.argv[1], Path(sys.argv[2]), sys.argv[3], sys.argv[4:]
    machines = repository / "configs/machines"
    with CheckedFolder() as name:
        folder = Path(name)
        if kind == "calibrated":
            in_a_run(program, folder, calibrated(program, folder, launcher), launcher)
        else:
            shipped_files(program, machines)
            refusals(program, folder, json.loads((machines / "cirrus_cpu.json").read_text()))
            in_a_run(program, folder, machines / "cirrus_cpu.json", launcher)
    print(f"{len(failures)} failures")
    return 1 if failures else 0


sys.exit(main())
