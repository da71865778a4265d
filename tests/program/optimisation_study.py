#!/usr/bin/env python3
"""launch/optimisation_study: a planted difference is found and planted noise is not, by figures made by hand; what it refuses and
leaves out, and that it goes on after whatever stops it; with a made-up program (study_fakes.py), and with the real one on 2 ranks.

    optimisation_study.py WORK_DIR SOURCE_DIR figures|rough                   with the made-up program
    optimisation_study.py WORK_DIR SOURCE_DIR real PROGRAM LAUNCHER WORDS...  whose last word takes the number of ranks
"""
import contextlib
import csv
import io
import json
import os
import shutil
import signal
import statistics
import sys
from pathlib import Path

from study_fakes import FAILURES, Bench, check_records, expect, near, results_of, run_real, set_rates

SEEDS = [7, 8, 9]  # 7 is the made-up program's
MACHINE = {7: 1.0, 8: 0.8, 9: 0.6, 10: 0.5}  # which becomes slower while the study runs
OF_SEED = {7: 1.0, 8: 1.1, 9: 0.9, 10: 1.0}  # losses
T_2 = 4.3027  # Student's t of 95 % and 2 degrees of freedom, by the tables


def planted(speeds, loss=(1.0, 1.0, 1.0), mib=100, joules=0.5, train=None):
    """Figures by seed of a setting that is so many times as fast as the baseline."""
    found = {}
    for seed, speed, factor in zip([*SEEDS, 10], [*speeds, speeds[0]], [*loss, loss[0]]):
        valid = [0.5 * OF_SEED[seed] * factor, 0.4 * OF_SEED[seed] * factor]
        found[seed] = {"rate": 100 * MACHINE[seed] * speed, "valid": valid, "train": train or valid, "mib": mib, "joules": joules}
    return found


PLANTED = {
    "baseline": planted([1, 1, 1]), "read-ahead": planted([1.05, 0.94, 1.02]),
    "bf16": planted([1.49, 1.51, 1.50], [1.0001, 0.9999, 1.0002], joules=0.4), "kernels": planted([1.10, 1.101, 1.099]),
    "dp": planted([1.8, 1.9, 1.7], mib=50), "zero": planted([1.8, 1.9 * 1.01, 1.7 * 0.99], mib=45), "tp": planted([0.8, 0.81, 0.79]),
    "fast": planted([1.2, 1.21, 1.19], [1.03, 1.031, 1.029]), "lost": planted([1.2, 1.21, 1.19], train=[0.5, None]),
    "little": planted([1.005, 1.0051, 1.0049])}
VERDICTS = {"read-ahead": False, "bf16": True, "kernels": True, "dp": True, "zero": False, "tp": False, "fast": False, "lost": False,
            "little": False}
WORDS = ["--rungs", "read-ahead,bf16,kernels,zero,tp,cuda-graph", "--set", "fast:--lr 2e-3", "--set", "lost:--clip-norm=1", "--set",
         "little:--depth=5", "--out", "arithmetic"]


def rungs_of(found):
    return {rung["name"]: rung for rung in found["rungs"]}


def arithmetic(bench):
    set_rates(bench.fakes, {f"{name}-s{seed}": figures for name, by_seed in PLANTED.items() for seed, figures in by_seed.items()})
    done = bench.run(*WORDS)
    expect(done.returncode == 0, f"the study ended with {done.returncode}: {done.err}")
    found = results_of(bench.work / "arithmetic")
    names, order = bench.started(), ["baseline", *VERDICTS]
    expect(names == [f"{name}-s7" for name in order] + [f"{name}-s8" for name in order[::-1]] + [f"{name}-s9" for name in order],
           f"seed by seed, every second one backwards: {names}")
    rungs = rungs_of(found)
    for name, keep in VERDICTS.items():
        expect(rungs[name]["keep"] is keep, f"{name}: {rungs[name]['keep']}: {rungs[name]['reason']}")
    # By hand: the pairs 0.49, 0.51, 0.50, whose standard deviation is 0.01.
    speed = rungs["bf16"]["quantities"]["samples_per_s"]
    expect(near(speed["difference"], 0.5) and abs(speed["half_width"] - T_2 * 0.01 / 3**0.5) < 1e-6, f"bf16: {speed}")
    expect(near(speed["before"], 80) and near(speed["spread_before"], 20) and speed["pairs"] == 3, f"bf16: {speed}")
    expect(speed["verdict"] == "better" and rungs["bf16"]["quantities"]["joules_per_sample"]["verdict"] == "better", "bf16 is better")
    loss = rungs["bf16"]["quantities"]["valid_loss"]
    expect(loss["verdict"] == "no difference" and near(loss["before"], 0.4), f"rounding is no difference: {loss}")
    noise = rungs["read-ahead"]["quantities"]["samples_per_s"]
    pairs = [0.05, -0.06, 0.02]
    expect(abs(noise["difference"] - statistics.fmean(pairs)) < 1e-9, f"noise: {noise}")
    expect(abs(noise["half_width"] - T_2 * statistics.stdev(pairs) / 3**0.5) < 1e-4 and noise["verdict"] == "no difference" and
           noise["reason"] == "within the spread of the seeds", f"noise: {noise}")
    # 10 % while the machine loses 40 %: without pairs that is nothing.
    expect(near(rungs["kernels"]["quantities"]["samples_per_s"]["difference"], 0.1), "what the machine does is no difference")
    expect(rungs["little"]["quantities"]["samples_per_s"]["reason"] == "below 1 %", "what is little does not count")
    expect("validation loss 3 % more" in rungs["fast"]["reason"] and "samples/s 20 % more" in rungs["fast"]["reason"],
           f"a loss that got worse: {rungs['fast']['reason']}")
    expect("training loss: it is no finite number" in rungs["lost"]["reason"], f"a loss that is none: {rungs['lost']['reason']}")
    zero = rungs["zero"]
    expect(zero["before"] == "dp" and zero["change"] == "--zero=1" and near(zero["quantities"]["tensor_bytes"]["difference"], -0.1) and
           near(zero["from_baseline"]["tensor_bytes"]["difference"], -0.55), f"a rung that stands on another: {zero}")
    expect(rungs["dp"]["from_baseline"] is None, "the baseline is what dp stands beside")
    expect([item["rung"] for item in found["left_out"]] == ["cuda-graph"] and "no effect" in found["left_out"][0]["reason"],
           f"left out: {found['left_out']}")
    expect("Left out: cuda-graph" in done.err and "cuda-graph is left out" in done.out and "zero stands on dp" in done.out,
           "what is left out is told")
    run = found["settings"][0]["runs"][0]
    expect(run["seed"] == 7 and run["valid_losses"] == [{"epoch": 1, "loss": 0.5}, {"epoch": 2, "loss": 0.4}], f"losses: {run}")
    lost = next(s for s in found["settings"] if s["name"] == "lost")["runs"][0]
    expect(lost["train_loss"] is None and lost["train_losses"][1] == {"epoch": 2, "loss": None}, f"a loss that is none: {lost}")
    files(bench)
    again(bench, found)


def files(bench):
    folder = bench.work / "arithmetic"
    with open(folder / "rungs.csv", encoding="utf-8") as file:
        rows = {(row["rung"], row["quantity"]): row for row in csv.DictReader(file)}
    row = rows["bf16", "samples_per_s"]
    expect(len(rows) == 9 * 5 and near(float(row["difference"]), 0.5) and row["keep"] == "keep" and row["change"] == "--precision=bf16",
           f"rungs.csv: {row}")
    with open(folder / "points.csv", encoding="utf-8") as file:
        points = list(csv.DictReader(file))
    expect(len(points) == 30 and near(float(points[0]["samples_per_s"]), 100) and near(float(points[0]["valid_loss.epoch2"]), 0.4),
           f"points.csv: {points[0]}")
    page = (folder / "report.html").read_text()
    expect("0.5 J/sample (± 0 %)" in page, "energy without its unit")
    expect("--seeds 3 (7, 8, 9); --epochs 2; --ranks 2; rungs read-ahead, bf16, kernels, cuda-graph, dp, zero, tp, fast, lost, little; "
           in page, "what was run is not told")
    expect(page.count("<svg") == 4 and "bf16: keep: samples/s 50 % more" in page and "45 comparisons have an interval" not in page and
           "44 comparisons have an interval" in page, "the page lacks something")  # the lost loss has none


def again(bench, found):
    """The same again runs nothing and says the same; more seeds add their runs; another goal keeps another."""
    bench.forget()
    done = bench.run(*WORDS)
    expect(done.returncode == 0 and bench.started() == [] and results_of(bench.work / "arithmetic") == found, "what has ended is kept")
    done = bench.run(*WORDS, "--goal", "memory", "--least-difference", "0.1", "--seeds", "4")
    expect(done.returncode == 0 and sorted(bench.started()) == sorted(f"{name}-s10" for name in ["baseline", *VERDICTS]),
           f"a fourth seed: {bench.started()}")
    rungs = rungs_of(results_of(bench.work / "arithmetic"))
    kept = [name for name, rung in rungs.items() if rung["keep"]]
    expect(kept == ["dp", "zero"], f"for memory: {kept}")
    expect(rungs["little"]["quantities"]["samples_per_s"]["verdict"] == "better", "a smaller difference that counts")
    expect(rungs["bf16"]["quantities"]["samples_per_s"]["pairs"] == 4, "four pairs")


def cumulative(bench):
    bench.forget()
    rate = {"baseline-and-bf16": 150.0, "baseline": 100.0, "bf16-before": 150.0, "bf16-and-dp": 300.0, "bf16+dp-before": 300.0,
            "bf16+dp-and-zero": 400.0, "kept": 300.0}
    set_rates(bench.fakes, {name: {"rate": value, "train": [0.5, 0.4], "valid": [0.5, 0.4]} for name, value in rate.items()})
    bench.set("fail", "bf16+dp-and-zero-s8")
    words = ["--cumulative", "--seeds", "2", "--rungs", "read-ahead,prefetch,bf16,zero", "--out", "cumulative"]
    done = bench.run(*words)
    found = results_of(bench.work / "cumulative")
    rungs = rungs_of(found)
    expect(done.returncode == 1 and {name: rung["keep"] for name, rung in rungs.items()} ==
           {"read-ahead": False, "bf16": True, "dp": True, "zero": False, "kept": True}, f"{done.returncode} {done.err} {rungs}")
    expect("1 of its runs failed: out of memory: made up" in rungs["zero"]["reason"], f"a failed run: {rungs['zero']['reason']}")
    expect(found["left_out"] == [{"rung": "prefetch", "reason": "it stands on read-ahead, which was not kept"}], str(found["left_out"]))
    expect(rungs["kept"]["before"] == "baseline-of-bf16+dp" and near(rungs["kept"]["quantities"]["samples_per_s"]["difference"], 2),
           f"all that was kept: {rungs['kept']}")
    expect(bench.started()[4:8] == ["baseline-before-bf16-s7", "baseline-and-bf16-s7", "baseline-and-bf16-s8", "baseline-before-bf16-s8"],
           f"what was kept takes turns with the rung: {bench.started()}")
    options = (bench.work / "cumulative/points/bf16+dp-and-zero-s7/run/config.yaml").read_text().split("\n")
    expect({"precision: bf16", "dp: 2", "zero: 1", "io_threads: 0", "seed: 7"} <= set(options), f"options of a run: {options}")
    # The failed one ends well now: it is kept, and what comes after is measured anew, under a name of its own.
    bench.forget()
    done = bench.run(*words)
    expect(done.returncode == 0 and sorted(bench.started()) == sorted(
        ["bf16+dp-and-zero-s8", *(f"{name}-bf16+dp+zero-s{seed}" for name in ("baseline-of", "kept") for seed in (7, 8))]),
        f"after a failed run: {bench.started()}")


def failures(bench):
    """Stopped, killed, damaged: nothing that has ended is lost."""
    bench.forget()
    set_rates(bench.fakes, {"baseline": 10.0, "bf16": 20.0})
    words = ["--rungs", "bf16", "--seeds", "2", "--out", "failing"]
    # Without a pair, by the reason of the run that there is.
    bench.set("hang", "bf16-s7")
    process = bench.begin(*words)
    bench.wait_for("bf16-s7")
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    expect("Energy is not known: made up: no counter." in err, f"energy of a study that was stopped: {err}")
    bench.forget()
    bench.set("hang", "bf16-s8")
    process = bench.begin(*words)
    bench.wait_for("bf16-s8")
    second = bench.run(*words)
    expect(second.returncode == 73 and "is in use by process" in second.err, f"a second study at once: {second.err}")
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    rung = rungs_of(results_of(bench.work / "failing"))["bf16"]
    expect(process.returncode == 75 and "stopped by SIGINT" in err and rung["keep"] is None and
           rung["reason"] == "1 of 2 pairs have been run", f"Ctrl-C: {process.returncode} {err} {rung['reason']}")
    # What kills a launcher tells nothing of the change; a rank's own end does.
    for who, keep, why in (("mpirun", None, "1 of its runs were ended: killed by signal 9 (SIGKILL)"),
                           ("rank", False, "1 of its runs failed: ended with exit code 137 (SIGKILL)")):
        bench.forget()
        bench.set("killed", f"{who} bf16-s8")
        done = bench.run(*words)
        rung = rungs_of(results_of(bench.work / "failing"))["bf16"]
        expect((done.returncode, rung["keep"], rung["reason"]) == (1, keep, why), f"a killed {who}: {done.returncode} {rung}")
    shutil.rmtree(bench.work / "failing/points/baseline-s8")
    bench.forget()
    bench.set("hang", "bf16-s8")
    process = bench.begin(*words)
    bench.wait_for("bf16-s8")
    process.kill()
    process.communicate()
    expect(bench.started() == ["bf16-s8"], f"what had ended is not run again: {bench.started()}")
    bench.forget()
    done = bench.run(*words)
    rung = rungs_of(results_of(bench.work / "failing"))["bf16"]
    expect(done.returncode == 0 and bench.started() == ["bf16-s8", "baseline-s8"], f"after a kill: {done.err} {bench.started()}")
    expect(rung["keep"] is None and "no loss is known" in rung["reason"], f"without losses: {rung['reason']}")
    # Half a summary, and a line of the records that is none.
    half = bench.work / "failing/points/bf16-s7/run/summary.json"
    half.write_text(half.read_text()[:100])
    records = bench.work / "failing/points/baseline-s8/run/metrics.jsonl"
    records.write_text(records.read_text().replace('"step": 2', '"step: 2'))
    bench.forget()
    done = bench.run(*words)
    expect(done.returncode == 0 and bench.started() == ["bf16-s7", "baseline-s8"], f"damaged ones: {done.err} {bench.started()}")
    damaged_files(bench, bench.work / "failing", words)


def damaged_files(bench, folder, words):
    """What a study keeps of itself, with something else in its place: no traceback, nothing is waited for, nothing acts on a terminal."""
    state = folder / "points/bf16-s7/state.json"
    whole = state.read_text()
    for process in ("x", {"host": os.uname().nodename, "pid": "\x1b[31m\0", "started": "1"}):
        bench.forget()
        state.write_text(json.dumps({"state": "running", "process": process}))
        done = bench.run(*words)
        expect(done.returncode == 0 and "\x1b" not in done.err, f"a state with process {process}: {done.returncode} {done.err}")
        expect(bench.started() == [], f"its whole run is done again: {bench.started()}")
    state.write_text(whole)
    for name, code, text in (("report.html", 73, "is no page of vit_hybrid"), ("study.lock", 73, "study.lock is no lock of a study"),
                             ("study.json", 65, "study.json is no study of this version")):
        kept = (folder / name).read_bytes() if (folder / name).exists() else None
        (folder / name).unlink(missing_ok=True)
        os.mkfifo(folder / name)
        done = bench.run(*words)
        expect(done.returncode == code and text in done.err, f"a FIFO in the place of {name}: {done.returncode} {done.err}")
        (folder / name).unlink()
        if kept is not None:
            (folder / name).write_bytes(kept)
    (folder / "study.lock").write_text(json.dumps({"host": "\x1b[31m", "pid": "\x1b[31m", "started": None}))
    done = bench.run(*words)
    expect(done.returncode == 73 and "\x1b" not in done.err and len(done.err.splitlines()) == 1, f"a hostile lock: {done.err}")
    (folder / "study.lock").unlink()
    (folder / "results.json").unlink()
    (folder / "results.json").mkdir()
    done = bench.run(*words)
    expect(done.returncode == 73 and "failing/results.json: Is a directory" in done.err, f"a folder for results.json: {done.err}")
    expect(not list(folder.glob("*.part")), "a temporary file is left")
    (folder / "results.json").rmdir()
    expect(bench.run(*words).returncode == 0, "what was damaged is whole again")


def own_rungs(bench, source):
    """Texts of --set, without starting the script."""
    sys.path.insert(0, os.path.join(source, "launch"))
    from ladder import own_rung
    from program import OptionTable
    os.environ["FAKE_DIR"] = str(bench.fakes)
    table = OptionTable(str(bench.fakes / "vit_hybrid"))
    for text, told in (("--lrr=1", "'--lrr' is no option of vit_hybrid train; did you mean --lr?"), ("--lr", "--lr has no value"),
                       ("--dp=auto", "whose --dp is no number of ranks; allowed: 1 or more"), ("--tp=x", "whose --tp is no number"),
                       ("x:", "without options"), ("x:'", "is no list of words"), ("dp:--lr=1", "whose name 'dp' is taken"),
                       ("--num-iters=5", "the study gives --steps to each run; give --epochs"),
                       ("lr=5", "'lr=5' is no option of vit_hybrid train; did you mean --lr?")):
        with contextlib.redirect_stderr(io.StringIO()) as err:
            try:
                own_rung(text, table, {"dp"})
                code = 0
            except SystemExit as end:
                code = end.code
        expect(code == 64 and told in err.getvalue() and err.getvalue().count("\n") == 1, f"--set {text}: {code} {err.getvalue()}")
    for text, name, words in (("--lr 2e-3 --no_deterministic --bf16", "lr=2e-3+no_deterministic+bf16", {
            "lr": "--lr=2e-3", "deterministic": "--no_deterministic", "precision": "--bf16"}), ("a:--stage-data='/x y'", "a", {
                "stage-data": "--stage-data=/x y"}), ("--stage-data=../x", "stage-data=.._x", {"stage-data": "--stage-data=../x"})):
        rung = own_rung(text, table, {"dp"})
        expect((rung.name, rung.words) == (name, words), f"--set {text}: {rung.name} {rung.words}")


def refusals(bench):
    bench.forget()
    other = bench.work / "other"
    other.mkdir()
    (other / "mine.txt").write_text("mine")
    for words, code, text in (
            (["--rungs", "bf15"], 64, "--rungs has 'bf15'; allowed: read-ahead, "),
            (["--confidence", "100"], 64, "--confidence is 100.0; allowed: 50 to below 100"),
            (["--set", "--precision=bf17"], 64, "'precision' is 'bf17'; allowed: fp32, bf16"),
            (["--set", "wide:--tp=8"], 64, "wide (--tp=8): 2 problems in the configuration: tensor degree (--tp) is 8, more than the 4 "
             "attention heads; another"),
            (["--baseline", "config"], 64, "there is no rung"),
            (["--seeds", "1000000000000"], 64, "--seeds is 1000000000000; allowed: 1 to 10000"),
            (["--rungs", "bf16", "--launcher", "mpirun '"], 64, "--launcher is 'mpirun '', which is no list of words: No closing quotation"),
            (["--rungs", "cuda-graph"], 64, "none of the rungs can be run; the first: --cuda-graph has no effect"),
            (["--rungs", "bf16", "--", "--data-parallel-size=2"], 64, "--dp is given after --, but"),
            (["--rungs", "bf16", "--", "--seed=2"], 64, "give --first-seed and --seeds"),
            (["--rungs", "bf16", "--", "--data=hdf5", "--train-data=none/x"], 66, "--train-data 'none/x' does not exist"),
            (["--rungs", "bf16", "--set", "other:--data=hdf5 --train-data=none/x"], 66, "other: --train-data 'none/x' does not exist"),
            (["--rungs", "bf16", "--out", "other"], 73, "holds other files and no study"),
            (["--rungs", "bf16", "--out", "failing", "--first-seed", "3"], 73, "first_seed is 3 (there: 7)"),
            (["--rungs", "tp", "--seeds", "2", "--out", "failing"], 73,
             "(there: not given); rungs.bf16 is not given (there: --precision=bf16); give the same again"),
            (["--rungs", "tp,bf16", "--ranks", "8", "--seeds", "1", "--out", "wide", "--set", "idle:--recompute=none"], 0,
             "Left out: tp: 2 problems in the configuration: ")):
        done = bench.run(*(words if "--out" in words else ["--out", "refused", *words]))
        lines = [line for line in done.err.splitlines() if text in line]
        expect(done.returncode == code and len(lines) == 1, f"{words}: {done.returncode}, not {code}: {done.err}")
        expect(code == 0 or len(done.err.splitlines()) == 1, f"{words}: more than one line: {done.err}")
    expect("Left out: idle: the training has it already" in done.err, f"a change that is none: {done.err}")
    rung = rungs_of(results_of(bench.work / "wide"))["bf16"]
    expect(rung["keep"] is None and "one seed tells nothing" in rung["reason"] and "With one seed the spread is not known" in done.err,
           f"one seed: {rung['reason']}")
    expect(not (bench.work / "refused").exists(), "what is refused leaves nothing")
    # A training as its options say, with a change of its own.
    bench.forget()
    set_rates(bench.fakes, {"baseline": 10.0, "half": 20.0})
    bench.set("other_cpu", "half-s7")
    done = bench.run("--baseline", "config", "--set", "half:--precision=bf16", "--set", "mb:--micro-batch-size=4", "--seeds", "1", "--out",
                     "own", "--", "--dp=2", "--lr=3e-4", "--name=builtin", "--zero-shard-size=2")
    options = (bench.work / "own/points/baseline-s7/run/config.yaml").read_text().split("\n")
    expect(done.returncode == 0 and {"dp: 2", "lr: 3e-4", "zero_shard_size: 2"} <= set(options) and "zero: 0" not in options,
           f"own baseline: {done.err} {options}")
    expect("Left out: mb: the training has it already" in done.err and bench.started() == ["baseline-s7", "half-s7"],
           f"micro-batches as they are in this layout: {done.err}")
    expect("Runs were made on different processors" in done.err, f"no word on processors: {done.err}")
    title = "<h1>Optimisation study of classification of 32 x 16 images, 208,074 parameters</h1>"
    expect(title in (bench.work / "own/report.html").read_text(), "what was trained, in words")
    configurations(bench)


def configurations(bench):
    """What a configuration file has of what the study gives, and threads by the ranks that run."""
    bench.forget()
    bench.set("config", "local-batch-size=3")
    done = bench.run("--rungs", "bf16", "--out", "refused")
    expect(done.returncode == 64 and "local_batch_size is 3, a batch that grows" in done.err, f"a batch that grows: {done.err}")
    set_rates(bench.fakes, {"s7": 10.0})
    bench.set("config", "threads=4096", "dp=2", "zero=0")
    done = bench.run("--baseline", "config", "--rungs", "zero", "--seeds", "1", "--out", "has-it")
    options = (bench.work / "has-it/points/zero-s7/run/config.yaml").read_text().split("\n")
    rung = rungs_of(results_of(bench.work / "has-it"))["zero"]
    expect(done.returncode == 0 and rung["before"] == "baseline" and "Left out: dp: the training has it already" in done.err,
           f"a rung stands on what the training has: {done.err}")
    expect("threads: 4096" in options and "outnumber the" in done.err and "in baseline, zero: their speed" in done.err,
           f"threads of the configuration: {options} {done.err}")
    bench.forget()
    cores, own = len(os.sched_getaffinity(0)), bench.environment.pop("OMP_NUM_THREADS")
    for words, ranks in ((["--ranks", "4096"], 1), (["--", "--dp=2"], 2)):
        done = bench.run("--baseline", "config", "--set", "half:--precision=bf16", "--seeds", "1", "--out", f"on-{ranks}", *words)
        options = (bench.work / f"on-{ranks}/points/half-s7/run/config.yaml").read_text().split("\n")
        expect(f"threads: {max(cores // ranks, 1)}" in options, f"threads of {ranks} ranks on {cores} cores: {options}")
    bench.environment["OMP_NUM_THREADS"] = own


def real(script, program, work, launcher):
    """The built-in data: layouts and recompute change no loss, ZeRO-1 and recompute hold less."""
    run_real(script, program, launcher, "--rungs", "read-ahead,bf16,zero,tp,pp,recompute-full,stage", "--seeds", "2", "--epochs", "2",
             "--set=fast:--lr=4e-3", "--out", str(work / "real"), "--", "--depth=2", "--generated-samples=64",
             "--generated-valid-samples=16", "--device=cpu")
    found = results_of(work / "real")
    rungs = rungs_of(found)
    expect(list(rungs) == ["read-ahead", "bf16", "dp", "zero", "tp", "pp", "recompute-full", "fast"], f"rungs: {list(rungs)}")
    expect([item["rung"] for item in found["left_out"]] == ["stage"], f"left out: {found['left_out']}")
    for name, most in (("read-ahead", 0), ("dp", 1e-4), ("zero", 1e-4), ("tp", 1e-4), ("pp", 1e-4), ("recompute-full", 0), ("bf16", 0.01)):
        for key in ("train_loss", "valid_loss"):
            difference = rungs[name]["quantities"][key]["difference"]
            expect(difference is not None and abs(difference) <= most, f"{name}: {key} differs by {difference}")
    for name in ("zero", "recompute-full", "bf16", "dp"):
        expect(rungs[name]["quantities"]["tensor_bytes"]["verdict"] == "better", f"{name}: {rungs[name]['quantities']['tensor_bytes']}")
    expect(rungs["fast"]["quantities"]["train_loss"]["verdict"] == "better", f"fast: {rungs['fast']['quantities']['train_loss']}")
    for rung in found["rungs"]:
        speed, energy = (rung["quantities"][key] for key in ("samples_per_s", "joules_per_sample"))
        expect(speed["half_width"] is not None and speed["before"] > 0, f"{rung['name']}: {speed}")
        expect(energy["before"] is not None or energy["reason"], f"{rung['name']}: {energy}")


def main():
    work, source, what, rest = Path(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4:]
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    script = os.path.join(source, "launch/optimisation_study")
    if what == "real":
        real(script, os.path.abspath(rest[0]), work, rest[1:])
    else:
        bench = Bench(script, work)
        if what == "rough":
            own_rungs(bench, source)
        for part in {"figures": (arithmetic, cumulative), "rough": (failures, refusals)}[what]:
            part(bench)
    check_records(work)
    print(f"{len(FAILURES)} failures")
    return 1 if FAILURES else 0


if __name__ == "__main__":
    sys.exit(main())
