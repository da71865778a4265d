#!/usr/bin/env python3
"""launch/zero_memory_study with the real program: bytes of a parameter beside the closed forms, the largest micro-batch and the
deepest model that fit in a memory, what it refuses, and that it goes on after it was killed.

    zero_memory_study.py WORK_DIR SOURCE_DIR PROGRAM short|long LAUNCHER WORDS...      (whose last word takes the number of ranks)
"""
import contextlib
import csv
import importlib.machinery
import importlib.util
import io
import json
import os
import re
import shutil
import subprocess
import sys
import time
import types
from pathlib import Path

from study_fakes import FAILURES, check_records, expect

SMALL = ["--", "--generated-samples=16", "--generated-valid-samples=4", "--depth=2", "--embed-dim=64", "--device=cpu"]


class Bench:
    def __init__(self, work, source, program, launcher):
        self.work, self.script = work, [os.path.join(source, "launch/zero_memory_study"), f"--launcher={' '.join(launcher[:-1])}"]
        self.environment = dict(os.environ, VIT_HYBRID=os.path.abspath(program))

    def run(self, *words):
        done = subprocess.run([*self.script, *words], cwd=self.work, env=self.environment, capture_output=True, text=True, timeout=900,
                              check=False)
        if "install what it needs" in done.stderr:
            print("[skipped]", done.stderr.strip())
            sys.exit(77)
        expect("Traceback" not in done.stderr, f"{words}: {done.stderr}")
        return done

    def results(self, folder):
        return json.loads((self.work / folder / "results.json").read_text())


def bytes_of(found, name):
    return sum(rank["classes"][name] for rank in found["ranks"]) / found["parameters"]


def sweep(bench, precisions, layouts, optimizers):
    """The measured classes against the closed forms by hand."""
    words = ["--dp", "1,2", "--zero", "0,1", "--precision", precisions, "--optimizer", optimizers, "--out", "sweep", *layouts, *SMALL]
    process = subprocess.Popen([*bench.script, *words], cwd=bench.work, env=bench.environment, stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL)
    first = bench.work / "sweep/points"
    for _ in range(1200):
        if len(list(first.glob("*/run/summary.json"))) >= 1 or process.poll() is not None:
            break
        time.sleep(0.05)
    process.kill()
    process.wait()
    whole = {path: path.stat().st_mtime_ns for path in first.glob("*/run/summary.json")}
    expect(len(whole) >= 1, "the study was killed before its first run had ended")
    done = bench.run(*words)
    expect(done.returncode == 0, f"the sweep ended with {done.returncode}: {done.stderr}")
    expect(all(path.stat().st_mtime_ns == at for path, at in whole.items()), "what had ended was run again")
    found = bench.results("sweep")
    by_hand = {("fp32", "adam"): (4, 4, 8), ("bf16", "adam"): (2, 4, 12), ("fp32", "sgd"): (4, 4, 4), ("bf16", "sgd"): (2, 4, 8)}
    for item in found["settings"]:
        values, dp = item["values"], item["values"]["dp"]
        parameters, gradients, state = by_hand[values["precision"], values["optimizer"]]
        state = state / dp if values["zero"] == 1 else state
        closed = item["closed_forms"]
        expect((closed["parameters"], closed["gradients"], closed["optimizer"]) == (parameters, gradients, state), f"{item['name']}: {closed}")
        whole_state = state * (dp if values["zero"] == 1 else 1)
        expect(closed["stage_2"] == parameters + (gradients + whole_state) / dp and
               closed["stage_3"] == (parameters + gradients + whole_state) / dp, f"stages 2 and 3 of {item['name']}: {closed}")
        for name, wanted in (("parameters", parameters), ("gradients", gradients), ("optimizer", state)):
            own, counted = item["bytes_per_parameter"][name], bytes_of(item, name) / dp
            expect(abs(own - counted) < 1e-9, f"{item['name']}: {name} {own}, by its ranks {counted}")
            # Padding, and what tensor ranks hold alike.
            expect(wanted <= own <= wanted * (1.03 if values["tp"] == 1 else 1.25), f"{item['name']}: {name} {own}, not {wanted}")
        for rank in item["ranks"]:
            expect(rank["total_peak"] <= rank["predicted_total"] + (4 << 20) and rank["process_peak"] > rank["total_peak"],
                   f"{item['name']}: {rank}")
    with open(bench.work / "sweep/points.csv", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    expect(len(rows) == sum(len(item["ranks"]) for item in found["settings"]), "a line for each rank")
    page = (bench.work / "sweep/report.html").read_text()
    expect(page.count("<svg") == 2 and "(ZeRO-3)" in page and "not implemented" in page and "allocator MiB</th>" in page and
           f'<td class="n">{found["settings"][0]["parameters"]}</td>' in page, "the page lacks something")
    return found


def parts(bench, dp, sizes):
    """The optimizer state over parts of the replicas."""
    done = bench.run("--dp", str(dp), "--zero-shard-size", ",".join(map(str, sizes)), "--out", "parts", *SMALL)
    expect(done.returncode == 0, f"the sweep over parts ended with {done.returncode}: {done.stderr}")
    settings = bench.results("parts")["settings"]
    expect([item["values"]["zero-shard-size"] for item in settings] == sizes, f"settings {[item['name'] for item in settings]}")
    for item in settings:
        size, closed = item["values"]["zero-shard-size"], item["closed_forms"]
        wanted = {"parameters": 4, "gradients": 4, "optimizer": 8 / size, "stage_2": 4 + 12 / size, "stage_3": 16 / size}
        expect({name: closed[name] for name in wanted} == wanted, f"{item['name']}: {closed}, not {wanted}")
        for rank in item["ranks"]:
            own = rank["classes"]["optimizer"] / item["parameters"]
            expect(8 / size <= own <= 8 / size * 1.03, f"{item['name']}, rank {rank['rank']}: {own} bytes of state, not {8 / size}")


def refusals(bench):
    other = bench.work / "other"
    other.mkdir()
    (other / "mine.txt").write_text("mine")
    for number, (words, code, text) in enumerate((
            (["--dp", "1,two"], 64, "--dp is '1,two', in which 'two' is no number"),
            (["--find", "depth", "--depth", "4", "--memory-gib", "1"], 64, "--find depth needs the values to look among"),
            (["--memory-gib", "1"], 64, "--find and --memory-gib belong together"),
            (["--precision", "fp32,fp31"], 64, "--precision"),
            (["--dp", "1", "--", "--dp=2"], 64, "--dp is given after --"),
            (["--dp", "64"], 64, "none of the combinations can be run"),
            (["--out", "other"], 73, "holds other files and no study"),
            (["--dp", "1", "--out", "sweep"], 73, "holds another study"))):
        done = bench.run(*(words if "--out" in words or "--" in words else [*words, "--out", f"refused{number}"]))
        is_one = len(done.stderr.splitlines()) == 1
        if words[0] == "--precision":  # one of the two is valid: the other is left out, and said
            expect("Left out: 1 of the combinations" in done.stderr and done.returncode == 0, f"{words}: {done.stderr}")
        else:
            expect(done.returncode == code and text in done.stderr and is_one, f"{words}: {done.returncode}, not {code}: {done.stderr}")


def load_script(source):
    sys.path.insert(0, os.path.join(source, "launch"))
    loader = importlib.machinery.SourceFileLoader("zero_memory_study_script", os.path.join(source, "launch/zero_memory_study"))
    script = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    loader.exec_module(script)
    return script


def what_is_not_known(script):
    """Nothing that fits, no process that is seen, no ranks: by figures, without the program."""
    study = types.SimpleNamespace(run_folder=lambda point: "run", point_folder=lambda point: "none", forget=lambda point: None,
                                  finished=lambda point: types.SimpleNamespace(ranks=[]),
                                  run=lambda points, watch: setattr(watch, "data_bytes", 0))
    search = script.Search(study, {"program": "/x/script"}, [], {"dp": 1, "tp": 1, "pp": 1}, "micro-batch", range(1, 4), 40 << 20)
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            search.base(0)
    except SystemExit as ended:
        said.write(f"{ended.code}")
    said = said.getvalue()
    expect(re.fullmatch(r"\S+: no process named as /x/script was seen, .*VIT_HYBRID, .*\n66", said), said)
    # What is said is of the smallest, also where it is found at the second look.
    search.bytes_of, search.base = [12 << 20, 11 << 20, 1 << 30].__getitem__, lambda index: ((25 + 4 * index) << 20, 0)
    error = search.run()["error"]
    expect(error == "not even 1 fits by plan: its tensors take 12 MiB and the libraries of its process 29 MiB, more than 40 MiB",
           error)
    run = types.SimpleNamespace(start={"model": {"parameters": 5}}, options={}, ranks=[])
    found = script.figures_of(types.SimpleNamespace(run=run, values={"dp": 2}))
    expect(found["bytes_per_parameter"] is None and script.most(run, "total_peak") is None, f"figures of no ranks: {found}")


def by_process_peak(script):
    """The limit lets through what touches more than was reserved: the process decides. By figures, without the program."""
    def failure(point):
        size, limit = int(point.name.split("-mb")[1].partition("-")[0]), 1024 * int(point.before[3])
        crashes = size == 39 and limit < 50 << 20
        return "killed by signal 11" if crashes else "out of memory: 1 B were asked for" if (size << 20) + (8 << 20) > limit else None

    def run_of(point):
        size = int(point.name.split("-mb")[1].partition("-")[0])
        memory = {key: (size << 20) + (size << 14) for key in ("process_peak", "total_peak", "predicted_total")}
        return None if failure(point) else types.SimpleNamespace(start={}, steps=[{}], ranks=[{"memory": memory}])
    study = types.SimpleNamespace(run_folder=lambda point: "run", finished=run_of, failure=failure)
    search = script.Search(study, {"program": ""}, [], {"dp": 1, "tp": 1, "pp": 1}, "micro-batch", range(1, 100), 40 << 20)
    search.limit, search.bytes_of = 80 << 20, lambda index: 0
    empty = {"name": "a", "find": "micro-batch", "planned": 35, "next_is": None, "next": None, "out_of_memory_at": None, "error": None}
    found = search.confirmed(dict(empty), 34)
    told = "killed by signal 11; 40: out of memory"
    expect((found["largest"], found["next"], found["out_of_memory_at"], found["next_is"]) == (38, 39, 40, told) and search.cuts == 1,
           f"by the process: {found}, the limit was lowered {search.cuts} times")
    expect(script.is_confirmed(found) and script.find_lines([found], 40 << 20) == [
        f"a: the largest micro-batch in 40 MiB is 38 (planned was 35): it trains 3 steps in 38.594 MiB; 39: {told}"], f"lines of {found}")
    # What crashes between two that train does not end the search.
    study.failure = lambda point: "killed by signal 11" if "-mb20-" in point.name else failure(point)
    study.finished = lambda point: None if study.failure(point) else run_of(point)
    search.limit, search.cuts = 46 << 20, 0
    found = search.confirmed(dict(empty), 18)
    expect((found["largest"], found["out_of_memory_at"]) == (38, 40), f"a crash on the way: {found}")


def plots(script, settings):
    """A row for each rank while there is room, then for each setting; marks that hide no other; a process without what it began with."""
    ranks = [{"rank": rank, "memory": {"total_peak": (8 - rank) << 20, "predicted_total": 8 << 20, "process_start": 150 << 20,
                                       "process_peak": (170 - rank) << 20, "allocator_peak": 8 << 20}} for rank in range(2)]
    found = [{**rank, "classes": dict.fromkeys(script.CLASSES, 1 << 20), "total_peak": rank["memory"]["total_peak"]} for rank in ranks]
    figures = {"ranks": found, "closed_forms": {**dict.fromkeys(script.STATES, 4), "stage_2": 16, "stage_3": 16},
               "bytes_per_parameter": dict.fromkeys([*script.STATES, "packed_weights"], 4.0)}
    every = [types.SimpleNamespace(label=f"s{i}", ranks=2, figures=figures, run=types.SimpleNamespace(ranks=ranks)) for i in range(settings)]
    for plot, rows in ((script.plot_states, min(settings, 24)), (script.plot_ranks, min(settings if settings > 12 else 2 * settings, 24))):
        drawing, told = plot(every)
        axes = drawing.axes[0]
        expect(len(axes.get_yticks()) == rows and axes.get_xlabel() and axes.get_title(), f"{settings} settings: {axes.get_yticks()}")
        expect(("first 24 of 30 settings" in told) == (settings > 24), f"{settings} settings: {told}")
        heights = [line.get_ydata()[0] for line in axes.lines]
        expect(len(heights) > 2 and min(after - before for before, after in zip(heights, heights[1:])) > 0.15, f"marks at {heights}")
        expect(len({line.get_marker() for line in axes.lines}) == len(heights), "marks of one shape")
        labels = [tick.get_text() for tick in axes.get_yticklabels()]
        expect(plot == script.plot_states or labels[1] == ("s0, 1" if settings <= 12 else "s1"), f"rows {labels}")
    expect(axes.lines[-1].get_xdata()[0] == 20, f"the process grew by {axes.lines[-1].get_xdata()}")


def largest(bench, find, words, folder):
    done = bench.run("--find", find, "--out", folder, *words)
    expect(done.returncode == 0, f"{folder} ended with {done.returncode}: {done.stdout} {done.stderr}")
    for found in bench.results(folder)["searches"]:
        expect(found["largest"] is not None and found["next"] > found["largest"], f"{folder}: {found}")
        memory = float(words[words.index("--memory-gib") + 1]) * 2**30
        least = 0.7 if find == "micro-batch" else 0.0
        expect(least * memory < found["process_peak"] <= memory, f"{folder}: {found['process_peak']} of {memory}")
        of_name = found["name"]
        states = {path.parent.name: json.loads(path.read_text()) for path in (bench.work / folder / "points").glob("*-limited*/state.json")}
        of_round = lambda name: int(name.rpartition("-limited-")[2]) if "-limited-" in name else 0
        last = max(of_round(name) for name in states if name.startswith(of_name))
        end = f"-limited-{last}" if last else "-limited"
        short = {"micro-batch": "mb", "depth": "depth"}[find]
        of_largest = [s for name, s in states.items() if name.startswith(of_name) and name.endswith(f"-{short}{found['largest']}{end}")]
        of_next = [s for name, s in states.items() if name.startswith(of_name) and name.endswith(f"-{short}{found['out_of_memory_at']}{end}")]
        expect([s["state"] for s in of_largest] == ["finished"], f"the largest did not train: {of_largest}")
        expect(len(of_next) == 1 and of_next[0].get("error", "").startswith("out of memory"),
               f"the next did not end for want of memory: {of_next} {found}")
    before = {path: path.stat().st_mtime_ns for path in (bench.work / folder / "points").glob("*/state.json")}
    again = bench.run("--find", find, "--out", folder, *words)
    expect(again.returncode == 0 and all(path.stat().st_mtime_ns == at for path, at in before.items()), "nothing is run again")


def main():
    work, source, program, is_long = Path(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4] == "long"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    bench = Bench(work, source, program, sys.argv[5:])
    if is_long:
        sweep(bench, "fp32,bf16", ["--tp", "1,2", "--pp", "1,2"], "adam,sgd")
        parts(bench, 4, [1, 2, 4])
        refusals(bench)
        small = ["--", "--generated-samples=512", "--generated-valid-samples=4", "--depth=2", "--device=cpu"]
        largest(bench, "micro-batch", ["--memory-gib", "0.4", "--recompute", "none,full", *small], "batch")
        largest(bench, "depth", ["--memory-gib", "0.5", "--depth", "1,2,4,8,16,32,64,128", "--micro-batch", "4", "--",
                                 "--generated-samples=16", "--generated-valid-samples=4", "--device=cpu"], "depth")
    else:
        # An option that is for values of a list, of which some of the list keep no state.
        done = bench.run("--optimizer", "adam,lars", "--out", "momentum", "--", "--momentum=0", *SMALL[1:])
        found = bench.results("momentum")["settings"] if done.returncode == 0 else []
        expect([(item["closed_forms"]["optimizer"], item["bytes_per_parameter"]["optimizer"]) for item in found] == [(0, 0)] and
               "Left out: 1 of the combinations" in done.stderr, f"momentum 0: {done.returncode}, {found} {done.stderr}")
        done = bench.run("--dp", "64", "--out", "sweep", "--", "--global-batch-size=8")
        expect(done.returncode == 64 and not (work / "sweep").exists(), f"a study that is refused leaves nothing: {done.stderr}")
        script = load_script(source)
        what_is_not_known(script)
        by_process_peak(script)
        for settings in (12, 13, 30):
            plots(script, settings)
        done = bench.run("--find", "micro-batch", "--memory-gib", "1", "--out", "gpu", "--", "--device", "cuda")
        expect(done.returncode == 64 and done.stderr == "zero_memory_study: --device=cuda is given, but --find limits no GPU's "
               "memory; leave it out\n" and not (work / "gpu").exists(), f"a GPU: {done.returncode} {done.stderr}")
        done = bench.run("--out", "sweep", "--", "--train-data=none/x", "--stats=y")
        expect(done.returncode == 66 and done.stderr == "zero_memory_study: --train-data 'none/x' does not exist; --stats 'y' does not "
               "exist\n" and not (work / "sweep").exists(), f"a study without its data: {done.stderr}")
        sweep(bench, "fp32", ["--tp", "1"], "adam")
        parts(bench, 4, [2])
        words = ["--find", "depth", "--depth", "1,2", "--memory-gib", "4", "--out", "both-fit", "--", "--embed-dim=64",
                 "--generated-samples=16", "--generated-valid-samples=4"]
        done = bench.run(*words)
        found = bench.results("both-fit")["searches"][0]
        expect(done.returncode == 0 and (found["largest"], found["next"], found["error"]) == (2, None, None), f"{found} {done.stderr}")
        page = (work / "both-fit/report.html").read_text()
        expect(re.search("; --dp 1 --tp 1 --pp 1 --depth 1,2 --find depth --memory-gib 4; options [^<]* --device=cpu", page),
               "the page lacks what was run")
        expect("-depth1: done\n" in done.stdout and " of 1 runs" not in done.stdout, f"runs one by one: {done.stdout}")
        done = bench.run("--launcher=other", *words)
        expect(done.returncode == 73 and "holds another study: mpirun is other (there: " in done.stderr,
               f"another launcher: {done.stderr}")
        done = bench.run("--find", "micro-batch", "--memory-gib", "0.3", "--out", "few", "--", "--embed-dim=32", "--depth=1",
                         "--generated-samples=4", "--generated-valid-samples=4", "--device=cpu")
        found = bench.results("few")["searches"][0]
        expect(found["largest"] == 4 and "the data have 4 samples, and a step would take 5" in found["next_is"], f"{found} {done.stderr}")
        done = bench.run("--find", "micro-batch", "--memory-gib", "0.01", "--out", "none", "--", "--embed-dim=32", "--depth=1",
                         "--generated-samples=4", "--generated-valid-samples=4", "--device=cpu")
        told = bench.results("none")["searches"][0]["error"]
        expect(done.returncode == 1 and re.fullmatch(r"not even 1 fits by plan: its tensors take \S+ [KM]iB and the libraries of its process "
                                                     r"\S+ MiB, more than 10\.24 MiB", told), f"{told} {done.stderr}")
    check_records(work)
    print(f"{len(FAILURES)} failures")
    return 1 if FAILURES else 0


if __name__ == "__main__":
    sys.exit(main())
