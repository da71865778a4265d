#!/usr/bin/env python3
"""launch/scaling_study: its arithmetic against figures by hand, what it refuses, and that it goes on after whatever stops it; with
a made-up program and a made-up Slurm (study_fakes.py), and with the real program on a few ranks.

    scaling_study.py WORK_DIR SOURCE_DIR                                         with the made-up program
    scaling_study.py WORK_DIR SOURCE_DIR PROGRAM MOST_RANKS LAUNCHER WORDS...    whose last word takes the number of ranks
"""
import csv
import itertools
import json
import os
import re
import shutil
import signal
import sys
from pathlib import Path
from types import SimpleNamespace

from study_fakes import FAILURES, Bench, check_records, expect, near, results_of, run_real, set_rates, wait_until


def arithmetic(bench):
    """Rates by hand: 10, 11, 12 on one rank; 18, 20, 22 on two; 25 on four; strong and weak have the first in common."""
    set_rates(bench.fakes, {
        "n1-dp1-tp1-pp1-b8-r1": 10.0, "n1-dp1-tp1-pp1-b8-r2": 12.0, "n1-dp1-tp1-pp1-b8-r3": 11.0,
        "n2-dp2-tp1-pp1-b8-r1": 18.0, "n2-dp2-tp1-pp1-b8-r2": 20.0, "n2-dp2-tp1-pp1-b8-r3": 22.0, "n2-dp1-tp2-pp1-b8": 15.0,
        "n4-dp4-tp1-pp1-b8": 25.0, "n4-dp2-tp2-pp1-b8": 24.0, "n8-dp8-tp1-pp1-b8": 26.0, "n8-dp4-tp2-pp1-b8": 30.0,
        "n2-dp2-tp1-pp1-b16": 20.0, "n2-dp1-tp2-pp1-b16": 16.0, "n4-dp4-tp1-pp1-b32": 44.0, "n4-dp2-tp2-pp1-b32": 40.0,
        "n8-dp8-tp1-pp1-b64": 88.0, "n8-dp4-tp2-pp1-b64": 80.0})
    done = bench.run("--ranks", "8,1,2,4", "--mode", "both", "--layouts", "dp,tp2", "--steps", "4", "--out", "sum")
    expect(done.returncode == 0, f"the study ended with {done.returncode}: {done.err}")
    found = results_of(bench.work / "sum")
    names = bench.started()
    expect(len(names) == len(set(names)) == 3 * 13, f"{len(names)} runs instead of 39")
    expect(names[:2] == ["n1-dp1-tp1-pp1-b8-r1", "n2-dp2-tp1-pp1-b8-r1"], "a repeat of all points goes before the next one")
    strong = {point["units"]: point for point in found["curves"]["strong"]["points"]}
    expect((strong[2]["name"], strong[8]["name"]) == ("n2-dp2-tp1-pp1-b8", "n8-dp4-tp2-pp1-b8"), "the fastest layout makes the curve")
    for units, value, least, most in ((1, 1, 1, 1), (2, 20 / 11, 18 / 12, 22 / 10), (4, 25 / 11, 25 / 12, 25 / 10),
                                      (8, 30 / 11, 30 / 12, 30 / 10)):
        speed, efficiency = strong[units]["speed_up"], strong[units]["efficiency"]
        expect(near(speed["value"], value) and near(speed["least"], least) and near(speed["most"], most), f"speed-up {units}: {speed}")
        expect(near(efficiency["value"], value / units) and near(efficiency["least"], least / units), f"efficiency: {efficiency}")
    # 1 to 2: (20/11 - 1) / 1 = 82 %; 2 to 4: (25/20 - 1) / 1 = 25 %.
    turning = found["curves"]["strong"]["turning_point"]
    expect(turning["units"] == 2 and turning["next_units"] == 4 and near(turning["share_of_ideal_gain"], 0.25), f"turning {turning}")
    expect(found["curves"]["weak"]["turning_point"] is None, "weak scaling never turns")
    weak = {point["units"]: point["efficiency"]["value"] for point in found["curves"]["weak"]["points"]}
    expect(near(weak[8], 88 / 11 / 8) and near(weak[4], 44 / 11 / 4), f"weak {weak}")
    rows = rows_of(done.out, "strong scaling")
    expect([row["layout"][:7] for row in rows] == ["dp1-tp1", "dp2-tp1", "dp1-tp2", "dp4-tp1", "dp2-tp2", "dp4-tp2", "dp8-tp1"] and
           rows[2]["speed-up"] == "1.36 (1.25 to 1.5)" and "predicted ms" not in rows[0], f"all layouts, the fastest first: {rows}")
    memory = [rows[3][name] for name in ("tensors MiB", "planned MiB", "process growth MiB", "planned growth MiB")]
    expect(memory == ["25", "26", "100", "29"], f"tensors counted and planned, the process's growth, and what was planned: {memory}")
    note = "Left out: tp2 at 1 rank with a batch of 8: it takes a multiple of 2 ranks."
    page = (bench.work / "sum/report.html").read_text()
    expect(f"scaling_study: {note}\n" in done.err and f"<p>{note}</p>" in page and note not in found["warnings"], f"a note: {done.err}")
    with open(bench.work / "sum" / "points.csv", encoding="utf-8") as file:
        rows = {(row["mode"], row["ranks"], row["layout"]): row for row in csv.DictReader(file)}
    row = rows["strong", "4", "dp4-tp1-pp1"]
    expect(len(rows) == 2 * 7 and near(float(row["step_seconds"]), 8 / 25) and near(float(row["speed_up"]), 25 / 11) and
           near(float(row["efficiency_least"]), 25 / 12 / 4), f"csv {row}")
    expect(near(float(row["seconds.backward"]), 0.5 * 8 / 25) and near(float(row["exposed_communication"]), 0.1), f"phases {row}")
    expect(near(float(row["seconds.other"]), 0.0625 * 8 / 25), f"other {row['seconds.other']}")
    expect(near(float(row["node_hours"]), 100 * 8 / 25 / 3600) and near(float(row["joules_per_sample"]), 50 / 25), f"energy {row}")
    expect(near(float(row["node_hours_per_sample"]), 1 / 25 / 3600), f"node-hours a sample {row}")
    memory = [float(row[key]) / 2**20 for key in ("tensor_bytes", "predicted_tensor_bytes", "process_growth", "predicted_process_growth")]
    expect(memory == [25, 26, 100, 29], f"memory: {memory}")
    warnings = "\n".join(found["warnings"])
    expect("Ranks outnumber cores at 8 ranks: a node has 4 cores" in warnings, f"no word on cores: {warnings}")
    expect("n2-dp2-tp1-pp1-b8 differ by 20 %" in warnings, f"no word on the spread: {warnings}")
    page = (bench.work / "sum" / "report.html").read_text()
    expect("Turning point: 2 ranks." in page and page.count("<svg") == 3 and "For a proposal" in page and "of it blocked in" in page and
           ">waiting<" in page and "xposed" not in page, "the page lacks something")
    expect(all(item["agree"] and item["largest"] == 0 for item in found["losses"]), "losses that are the same agree")
    # The same again runs nothing and says the same.
    bench.forget()
    again = bench.run("--ranks", "8,1,2,4", "--mode", "both", "--layouts", "dp,tp2", "--steps", "4", "--out", "sum")
    expect(again.returncode == 0 and bench.started() == [], "what has ended is not run again")
    expect(results_of(bench.work / "sum") == found, "the same runs give the same results")


def losses(source):
    """Of any two runs, not of each beside the first one, which may lie between the others."""
    sys.path.insert(0, os.path.join(source, "launch"))
    from scaling import loss_differences

    def found(*runs):
        setting = SimpleNamespace(name="a", batch=8, runs=[{"repeat": i, "losses": each} for i, each in enumerate(runs, 1)])
        return loss_differences([setting], "bf16")[8]
    apart = found([1.0, 2.0], [1.004, 2.0], [0.996, 2.0])
    expect(near(apart["largest"], 0.008 / 0.996) and not apart["agree"] and (apart["where"], apart["step"]) == ("a-r3 and a-r2", 1),
           f"losses on both sides of the first run's: {apart}")
    short = found([1.0, 2.0], [1.0])
    expect((short["largest"], short["where"], short["step"], short["agree"]) == (None, "a-r2", 2, False), f"a step is missing: {short}")


def rows_of(out, title):
    """The rows of a table of the terminal, by column."""
    lines = out.split(title)[1].splitlines()[1:]
    header = re.split(r"  +", lines[0].strip())
    return [dict(zip(header, re.split(r"  +", line.strip()))) for line in itertools.takewhile(lambda line: "  " in line, lines[1:])]


def even_number_of_runs(bench):
    """Of two runs the slower one is the point's, so that samples/s, time of a step and node-hours tell the same."""
    bench.forget()
    set_rates(bench.fakes, {"n1-dp1-tp1-pp1-b8-r1": 10.0, "n1-dp1-tp1-pp1-b8-r2": 20.0, "n2": 30.0})
    bench.set("predicted", "0.5")
    done = bench.run("--ranks", "1,2", "--steps", "1", "--repeat", "2", "--out", "even")
    expect(done.returncode == 0, f"two runs of a point: {done.returncode} {done.err}")
    with open(bench.work / "even" / "points.csv", encoding="utf-8") as file:
        row = next(row for row in csv.DictReader(file) if row["ranks"] == "1")
    found = {key: float(row[key]) for key in ("samples_per_s", "step_seconds", "node_hours", "node_hours_per_sample")}
    expect(near(found["samples_per_s"], 10) and near(found["step_seconds"], 0.8) and near(found["node_hours"], 80 / 3600)
           and near(found["node_hours_per_sample"], 0.1 / 3600), f"figures of two runs: {found}")
    expect(near(float(row["seconds.backward"]), 0.5 * 0.8), f"the phases are those of the run with the other figures: {row}")
    cells = rows_of(done.out, "strong scaling")[0]
    expect((cells["ms a step"], cells["predicted ms"]) == ("800", "400"), f"predicted beside measured: {cells}")
    expect(near(results_of(bench.work / "even")["curves"]["strong"]["points"][1]["speed_up"]["value"], 3), "speed-up of two runs")
    bench.set("fail", "n1-dp1-tp1-pp1-b8-r1", "n1-dp1-tp1-pp1-b8-r2")
    bench.run("--ranks", "1,2", "--steps", "1", "--repeat", "2", "--out", "alike")
    lines = [line for line in results_of(bench.work / "alike")["warnings"] if line.startswith("Failed")]
    expect(len(lines) == 1 and lines[0].startswith("Failed: n1-dp1-tp1-pp1-b8-r1, n1-dp1-tp1-pp1-b8-r2: out of memory: made up"),
           f"runs that failed alike: {lines}")
    bench.set("fail")


def machines(bench):
    """Figures of a GPU and of its runs that failed; runs on different processors, with more threads than cores."""
    bench.forget()
    set_rates(bench.fakes, {"r1": 20.0, "r2": 10.0})
    bench.set("gpu", "H0")
    bench.set("fail", "n4-dp4-tp1-pp1-b8-r2")
    done = bench.run("--ranks", "2,4", "--layouts", "dp,dp2", "--steps", "1", "--repeat", "2", "--out", "gpu")
    row = rows_of(done.out, "strong scaling")[0]
    expect(done.returncode == 1 and row["planned MiB"] == "51" and "process growth MiB" in row and "planned growth MiB" not in row,
           f"planned by the runs: {done.returncode} {done.err} {row}")
    expect([each["modes"] for each in results_of(bench.work / "gpu")["settings"]] == [["strong"]] * 2, "a mode is there once")
    text = "commit fake on H0 from 2 to 4 ranks: the median of 1 to 2 runs of 1 step after"
    expect(text in (bench.work / "gpu/report.html").read_text(), "what was measured on what, how often")
    bench.forget()
    bench.set("other_cpu", "n2-dp2-tp1-pp1-b8-r1")
    bench.set("no_power", "n2-dp2-tp1-pp1-b8-r1")
    done = bench.run("--ranks", "2", "--steps", "1", "--repeat", "2", "--out", "mixed", "--", "--threads=3")
    for text in ("Runs were made on different processors, so their times do not compare: another one; made up.",
                 "Ranks of 3 threads outnumber cores at 2 ranks: a node has 4 cores"):
        expect(text in done.err, f"no word on this: {text}: {done.err}")
    expect("A sample takes 5 J (processors)." in (bench.work / "mixed/report.html").read_text(), "whose energy it is")


def configurations(bench):
    """What a configuration file has of what the study gives."""
    bench.forget()
    set_rates(bench.fakes, {"n": 10.0})
    bench.set("config", "local-batch-size=3")
    done = bench.run("--ranks", "1,2", "--out", "refused")
    expect(done.returncode == 64 and "local_batch_size is 3, a batch that grows" in done.err and len(done.err.splitlines()) == 1 and
           not (bench.work / "refused").exists(), f"a batch that grows: {done.returncode} {done.err}")
    bench.set("config", "threads=3", "zero-shard-size=2", "dp=2", "tp=1")
    done = bench.run("--ranks", "2,4", "--steps", "1", "--repeat", "1", "--out", "given")
    expect(done.returncode == 0 and len(bench.started()) == 2, f"a layout of its own: {done.returncode} {done.err}")
    found = results_of(bench.work / "given")["definition"]
    expect(found["options"] == ["--threads=3"] and found["configuration"]["zero_shard_size"] == "2", f"as they were given: {found}")


def failures(bench):
    """A run that fails, is cut off, or is of another study; nothing that has ended is lost."""
    bench.forget()
    words = ["--ranks", "1,2,4", "--steps", "1", "--repeat", "1", "--out", "failing"]
    set_rates(bench.fakes, {"n1": 10.0, "n2": 16.0, "n4": 20.0})
    bench.set("fail", "n1-dp1-tp1-pp1-b8-r1")
    bench.set("hang", "n4-dp4-tp1-pp1-b8-r1")
    process = bench.begin(*words)
    bench.wait_for("n4-dp4-tp1-pp1-b8-r1")
    second = bench.run(*words)
    expect(second.returncode == 73 and "is in use by process" in second.err, f"a second study at once: {second.err}")
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=200)
    expect(process.returncode == 75 and "stopped by SIGINT" in err, f"Ctrl-C: {process.returncode} {err}")
    found = results_of(bench.work / "failing")
    base = found["curves"]["strong"]["points"][0]
    expect(base["units"] == 2 and base["speed_up"]["value"] == 1, "the smallest point that ran is the base")
    expect(any("Failed: n1-dp1-tp1-pp1-b8-r1: out of memory: made up" in line for line in found["warnings"]), "the program's own line")
    # Killed in the same run: what it had begun ends, and is run again.
    bench.forget()
    bench.set("hang", "n4-dp4-tp1-pp1-b8-r1")
    process = bench.begin(*words)
    bench.wait_for("n4-dp4-tp1-pp1-b8-r1")
    process.kill()
    process.communicate()
    expect(bench.started() == ["n1-dp1-tp1-pp1-b8-r1", "n4-dp4-tp1-pp1-b8-r1"], f"failed and cut off ones: {bench.started()}")
    bench.forget()
    done = bench.run(*words)
    expect(done.returncode == 0 and bench.started() == ["n4-dp4-tp1-pp1-b8-r1"], f"after a kill: {done.err} {bench.started()}")
    expect(near(results_of(bench.work / "failing")["curves"]["strong"]["points"][2]["speed_up"]["value"], 2.0), "the whole curve")
    # A summary that is half there is no run's end.
    half = bench.work / "failing/points/n2-dp2-tp1-pp1-b8-r1/run/summary.json"
    half.write_text(half.read_text()[:100])
    bench.forget()
    bench.run(*words)
    expect(bench.started() == ["n2-dp2-tp1-pp1-b8-r1"], f"half a summary: {bench.started()}")
    bench.forget()
    bench.set("fail", "n1-dp1-tp1-pp1-b8-r1")
    shutil.rmtree(bench.work / "failing")
    done = bench.run(*words)
    expect(done.returncode == 1 and len(bench.started()) == 3, f"a failed run and the others: {done.returncode} {bench.started()}")
    # A launcher that fails says why in the middle of what it prints.
    bench.forget()
    frame = "-" * 74
    bench.set("broken", "begins", "ssh: Could not resolve hostname n1", f"{frame}\nAdvice on an error.\n{frame}", "Failing at: 0")
    done = bench.run("--ranks", "1", "--repeat", "1", "--out", "launcher")
    expect(done.returncode == 1 and "Failed: n1-dp1-tp1-pp1-b8-r1: ended with exit code 255; output.txt: ssh: Could not resolve hostname "
           "n1\n" in done.err, f"a launcher that fails: {done.err}")
    crash = ["*** Process received signal ***", "Signal: Segmentation fault (11)", "Signal code: Address not mapped (1)",
             "Failing at address: 0x1", "[ 0] lib_fault.so(+0x3c050)[0x7fe0]", "*** End of error message ***"]
    ended = "vit_hybrid: stopped by SIGTERM before the first step: nothing was trained, and nothing is to be saved; give the command again"
    bench.set("broken", *(f"[n1:7] {line}" for line in crash), ended, "[n1:8] Signal: Aborted (6)")
    done = bench.run("--ranks", "1", "--repeat", "1", "--out", "launcher")
    expect("code 255; output.txt: [n1:7] Signal: Segmentation fault (11)\n" in done.err, f"a crash: {done.err}")
    page = (bench.work / "launcher/report.html").read_text()
    expect('<td class="long">failed: ended with exit code 255' in page, "a long text pushes columns out of view")
    bench.set("broken", "its only line")
    expect("code 255; output.txt: its only line\n" in bench.run("--ranks", "1", "--repeat", "1", "--out", "launcher").err, "one line")
    # Others were ended by the launcher, and a warning is no cause.
    bench.set("broken", "vit_hybrid: warning: --cuda-graph has no effect here: it is for GPUs, and the run failed to use one", ended, "1 of 3")
    for who, told in ("rank", "ended with exit code 137 (SIGKILL)\n"), ("mpirun", "failed: killed by signal 9 (SIGKILL)\n"):
        bench.set("killed", who)
        done = bench.run("--ranks", "1", "--repeat", "1", "--out", "launcher")
        expect(told in done.out, f"a killed {who}: {done.out}")
    (bench.fakes / "killed").unlink()
    done = bench.run("--ranks", "1", "--repeat", "1", "--out", "launcher")
    expect(f"failed: {ended.partition(': ')[2]}\n" in done.out, f"what was told to end: {done.out}")
    # Losses that differ.
    bench.forget()
    set_rates(bench.fakes, {"n": 10.0})
    bench.set("off", "1e-2")
    done = bench.run("--ranks", "2", "--layouts", "dp,tp2", "--steps", "4", "--repeat", "1", "--out", "off")
    loss = results_of(bench.work / "off")["losses"][0]
    expect(done.returncode == 1 and not loss["agree"] and near(loss["largest"], 0.01) and loss["step"] == 5, f"losses: {loss}")


def refusals(bench):
    bench.forget()
    other = bench.work / "other"
    other.mkdir()
    (other / "mine.txt").write_text("mine")
    zero = bench.work / "zero"
    zero.mkdir()
    (zero / "study.json").write_text('{"kind": "zero_memory_study", "format": 1, "definition": {}}')
    for words, code, text in (
            (["--ranks", "1,x"], 64, "--ranks is '1,x', in which 'x' is no number"),
            (["--ranks", "1,1"], 64, "has 1 more than once"),
            (["--rank", "1,2", "--", "--depth=2"], 64, "unknown argument '--rank'; did you mean --ranks?"),
            (["--nr-of-ranks=1", "--out", "x"], 64, "unknown argument '--nr-of-ranks'; --help lists the options"),
            (["--ranks=1", "x", "--out", "x", "--", "--depth=2"], 64, "a word before -- belongs to no option"),
            (["--ranks=1", "--out", "lost", "--", "--data=hdf5", "--train-data=none/x"], 66, "--train-data 'none/x' does not exist"),
            (["--ranks", "0,1"], 64, "0 is out of range"),
            (["--ranks", "1,2", "--layouts", "tp2-up4"], 64, "--layouts has 'tp2-up4'"),
            (["--ranks", "1", "--", "--dp", "2"], 64, "--dp is given after --"),
            (["--ranks", "1", "--", "--data-parallel-size=2"], 64, "--dp is given after --"),
            (["--ranks", "1", "--", "--dpth=2"], 64, "'--dpth' is no option of vit_hybrid train; did you mean --depth?"),
            (["--ranks", "2,3", "--mode", "weak", "--", "--global-batch-size=9"], 64, "9 samples on 2 are no whole number on 3"),
            (["--ranks", "16", "--layouts", "dp"], 64, "fewer samples than the 16 replicas"),
            (["--ranks", "1,2,4", "--layouts", "dp,tp3", "--mode", "both"], 64,
             "--layouts has tp3, which is valid at none of the points: it takes a multiple of 3 ranks"),
            (["--ranks", "1", "--out", str(other)], 73, "holds other files and no study"),
            (["--ranks", "1", "--out", str(zero)], 73, "holds a study of launch/zero_memory_study"),
            (["--ranks", "1,2,4", "--steps", "2", "--repeat", "1", "--out", "failing", "--", "--depth=5"], 73,
             "configuration.depth is 5 (there: 4)"),
            (["--ranks", "1,2", "--steps", "2", "--repeat", "1", "--out", "failing"], 73, "ranks is 1, 2 (there: 1, 2, 4)"),
            (["--ranks", "1,2", "--memory-gib", "0.05", "--out", "small", "--repeat", "1"], 0, "takes 103 MiB a rank, more than --memory-gib 0.05"),
            (["--ranks", "1,2", "--out", "of-machine", "--repeat", "1", "--", "--name=on-51-mib"], 0, "more than the --machine has for it")):
        done = bench.run(*words)
        lines = [line for line in done.err.splitlines() if text in line]
        expect(done.returncode == code and len(lines) == 1, f"{words}: {done.returncode}, not {code}: {done.err}")
        expect(code == 0 or len(done.err.splitlines()) == 1, f"{words}: more than one line: {done.err}")
    expect(not (bench.work / "lost").exists(), "without its data a study leaves nothing")
    bench.forget()
    done = bench.run("--nodes=1", "--ranks-per-node=1", "--hosts=elsewhere", "--repeat=1", "--steps=1", "--out", "found", "--",
                     "--data=hdf5", "--train-data=none/x", "--name=run")
    expect(done.returncode == 0 and len(bench.started()) == 1, f"data that may be elsewhere: {done.err}")
    page = (bench.work / "found/report.html").read_text()
    expect("<h1>Scaling study of classification of 32 x 16 images, 208,074 parameters</h1>" in page and
           "Strong scaling of classification of 32 x 16 images (208,074 parameters" in page, "what was trained, in words")
    shutil.rmtree(zero)
    expect((other / "mine.txt").read_text() == "mine" and len(list(other.iterdir())) == 1, "another's folder is left alone")


def slurm(bench):
    """Jobs in a made-up Slurm: one fails, one is cancelled, the study is killed, and jobs that go on are collected."""
    bench.forget()
    set_rates(bench.fakes, {"n": 10.0})
    (bench.work / "job.sh").write_text('#!/bin/bash\nexec "$VIT_HYBRID" "$@"\n')
    words = ["--nodes", "1,2", "--ranks-per-node", "2", "--layouts", "dp,tp4", "--slurm", "job.sh", "--sbatch=--account=me", "--steps", "1",
             "--repeat", "1", "--out", "jobs%j"]
    bench.set("hang", "n4-dp1-tp4-pp1-b8-r1")
    process = bench.begin(*words, launcher=False)
    bench.wait_for("n4-dp1-tp4-pp1-b8-r1")
    process.kill()
    process.communicate()
    jobs = sorted(bench.fakes.glob("job?"))
    expect([path.read_text().split()[1:] for path in jobs][0] == ["2", "vh-n2-dp2-tp1-pp1-b8-r1", "me"], "what sbatch was given")
    last = int(jobs[-1].read_text().split()[0])
    process = bench.begin(*words, launcher=False)
    bench.wait_for_look(jobs[-1].name.removeprefix("job"))
    expect(process.poll() is None, "a job that goes on is waited for")
    os.killpg(last, signal.SIGKILL)
    out, err = process.communicate(timeout=200)
    expect(process.returncode == 1 and "ended as CANCELLED by 0" in err, f"a cancelled job: {process.returncode} {err}")
    expect(len(bench.started()) == 3, f"no job was submitted twice: {bench.started()}")
    bench.forget()
    done = bench.run(*words, launcher=False)
    expect(done.returncode == 0 and bench.started() == ["n4-dp1-tp4-pp1-b8-r1"], f"the cancelled one again: {done.err}")
    expect("A tensor group spans nodes in n4-dp1-tp4-pp1-b8" in done.err, f"no word on the tensor group: {done.err}")
    found = results_of(bench.work / "jobs%j")
    run = next(s for s in found["settings"] if s["ranks"] == 4)["runs"][0]
    expect(run["nodes"] == 2 and near(run["node_hours"], 2 * 100 * 0.8 / 3600), f"node-hours of two nodes: {run['node_hours']}")
    bench.forget()
    bench.set("kill_study")
    words[-1] = "cut-short"
    process = bench.begin(*words, launcher=False)
    process.communicate(timeout=200)
    expect(process.returncode == -signal.SIGKILL, f"killed while it submits: {process.returncode}")
    (bench.fakes / "kill_study").unlink()
    done = bench.run(*words, launcher=False)
    expect(done.returncode == 0 and len(bench.started()) == 3, f"the job is found, and submitted once: {bench.started()} {done.err}")
    # What Slurm says of a job that has ended may come late.
    for known, is_asked in (([], True), (["squeue_knows"], False)):
        bench.forget()
        for name in [*known, "sacct_lags"]:
            bench.set(name)
        shutil.rmtree(bench.work / "cut-short")
        done = bench.run(*words, launcher=False)
        expect(done.returncode == 0 and (bench.fakes / "sacct_lags").exists() != is_asked, f"{known} sacct lags: {done.err}")
    bench.set("no_sbatch")
    shutil.rmtree(bench.work / "cut-short")
    done = bench.run(*words, launcher=False)
    expect(done.returncode == 74 and done.err.endswith("Invalid account\n") and len(done.err.splitlines()) == 1, f"no account: {done.err}")


def rough(bench):
    """Records that were lost, files that cannot be written, a lock that somebody removes, an output that nobody reads."""
    bench.forget()
    set_rates(bench.fakes, {"n": 10.0})
    words = ["--ranks", "1,2", "--steps", "2", "--repeat", "1", "--out", "rough"]
    bench.run(*words)
    first, second = (bench.work / "rough/points" / name for name in ("n1-dp1-tp1-pp1-b8-r1", "n2-dp2-tp1-pp1-b8-r1"))
    whole = (first / "run/metrics.jsonl").read_text().splitlines(keepends=True)
    for kept in (whole[:1], whole[:2] + whole[3:]):  # without steps, and without one in the middle
        bench.forget()
        (first / "run/metrics.jsonl").write_text("".join(kept))
        done = bench.run(*words)
        expect(done.returncode == 0 and bench.started() == [first.name], f"lost steps: {done.returncode} {bench.started()} {done.err}")
    process = {"host": "lost-node", "pid": 7, "started": "8"}
    for state, code, text in (({"state": "running", "process": process}, 73, f"where it is gone, remove rough/points/{first.name}/state.json"),
                              ({"state": "failed", "error": ["made up"]}, 0, "")):
        (first / "state.json").write_text(json.dumps(state))
        done = bench.run(*words)
        expect(done.returncode == code and text in done.err, f"{state}: {done.returncode} {done.err}")
    damaged = json.loads((second / "run/summary.json").read_text())
    damaged["test"]["samples_per_s_spread"]["median"] = -5
    (second / "run/summary.json").write_text(json.dumps(damaged))
    done = bench.run(*words)
    points = results_of(bench.work / "rough")["curves"]["strong"]["points"]
    expect(done.returncode == 0 and [point["units"] for point in points] == [1], f"a negative speed: {done.returncode} {points} {done.err}")
    bench.forget()
    bench.set("hang", second.name)
    (second / "run/summary.json").unlink()
    process = bench.begin(*words)
    bench.wait_for(second.name)
    (bench.work / "rough/study.lock").unlink()
    (bench.work / "rough/study.lock").write_text(json.dumps({"host": "other", "pid": 1, "started": "2"}))
    wait_until(lambda: json.loads((second / "state.json").read_text()).get("process"), "no process is known of the run")
    own = json.loads((second / "state.json").read_text())["process"]["pid"]
    (second / "state.json").unlink()
    (second / "state.json").mkdir()
    os.kill(own, signal.SIGTERM)
    _, err = process.communicate(timeout=200)
    expect(process.returncode == 74 and err.endswith(f"points/{second.name}/state.json: Is a directory\n") and "Traceback" not in err,
           f"a state that cannot be written: {process.returncode} {err}")
    expect("other" in (bench.work / "rough/study.lock").read_text(), "another study's lock is left alone")
    (bench.work / "rough/study.lock").unlink()
    bench.forget()
    bench.set("hang", second.name)
    process = bench.begin(*words)
    process.stdout.close()
    process.stdout = None
    _, err = process.communicate(timeout=200)
    expect(process.returncode == 75 and "Traceback" not in err, f"nobody reads: {process.returncode} {err}")
    bench.forget()
    done = bench.run(*words)
    expect(done.returncode == 0 and bench.started() == [second.name], f"at last: {bench.started()} {done.err}")


def real(script, program, work, launcher, ranks):
    """The built-in data on a machine of a few cores."""
    cores = os.cpu_count()
    run_real(script, program, launcher, "--ranks", ",".join(map(str, ranks)), "--mode", "strong", "--layouts",
             "dp" if len(ranks) < 3 else "dp,tp2", "--steps", "2", "--repeat", "1", "--out", str(work / "real"), "--", "--depth=2",
             "--generated-samples=32")
    found = results_of(work / "real")
    crowded = [line for line in found["warnings"] if line.startswith("Ranks outnumber cores")]
    expect(bool(crowded) == (ranks[-1] > cores), f"{cores} cores, {ranks}: {found['warnings']}")
    expect(found["losses"][0]["agree"] and found["losses"][0]["largest"] is not None, f"losses {found['losses']}")
    expect([point["units"] for point in found["curves"]["strong"]["points"]] == ranks, "a point is missing")
    for setting in found["settings"]:
        for run in setting["runs"]:
            planned = setting["plan"]["fullest_rank"]["bytes"]
            expect(run["tensor_bytes"] <= 1.01 * planned + (4 << 20), f"memory of {setting['name']}")
            expect(run["phases"] and run["phases"]["backward"] > run["phases"]["optimizer"] > 0, f"phases of {setting['name']}")
            expect((run["exposed_communication"] > 0) == (setting["ranks"] > 1), f"communication of {setting['name']}")


def main():
    work, source, rest = Path(sys.argv[1]), sys.argv[2], sys.argv[3:]
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    script = os.path.join(source, "launch/scaling_study")
    if rest:
        real(script, os.path.abspath(rest[0]), work, rest[2:], [ranks for ranks in (1, 2, 4, 8) if ranks <= int(rest[1])])
    else:
        bench = Bench(script, work)
        losses(source)
        for part in (arithmetic, even_number_of_runs, machines, configurations, failures, refusals, slurm, rough):
            part(bench)
    check_records(work)
    print(f"{len(FAILURES)} failures")
    return 1 if FAILURES else 0


if __name__ == "__main__":
    sys.exit(main())
