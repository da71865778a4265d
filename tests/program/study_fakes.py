"""What the tests of studies have in common, and stand-ins: a program whose runs have made-up figures, a launcher that starts it once, and Slurm's
commands. What they do is told by files of the folder FAKE_DIR:

    rates.json      {"n2-...-r1": samples/s}, by the first key that the run's name begins or ends with; of a training with --epochs
                    also {"rate": ..., "train": [loss of each epoch], "valid": [...], "mib": ..., "joules": a sample}
    fail, hang      names of runs, one a line: fail ends with 64 and a line, hang leaves half a run and sleeps
    broken          what the launcher says as it fails, before the program
    killed          who is killed then, rank or mpirun, and a part of the name of the run, if not of all
    predicted       a factor: runs of --test have predicted so many times the time of a step
    config          NAME=VALUE, one a line, as if a configuration file had them
    gpu             a GPU's name: runs are made on it; other_cpu, no_power: names of runs with another processor, without counters
    squeue_knows    squeue still knows jobs that ended well; sacct_lags: sacct says once more that a job runs, and removes it
    started         the names of the runs that were started, in their order
    seen_running    the jobs that squeue said were running, each time
"""
import json
import os
import stat
import subprocess
import sys
import time
from pathlib import Path

FAILURES = []

PROGRAM = r'''#!/usr/bin/python3 -SE
import json, os, sys, time
fakes = os.environ["FAKE_DIR"]
def lines(name):
    path = os.path.join(fakes, name)
    return open(path).read().split() if os.path.exists(path) else []
words = sys.argv[1:]
given = dict(word[2:].split("=", 1) for word in [*("--" + line for line in lines("config")), *words] if word.startswith("--") and "=" in word)
def fail(text):
    print("vit_hybrid: " + text, file=sys.stderr)
    sys.exit(64)
# name: (default, type, allowed words)
OPTIONS = {"seed": ("7", "integer", 0), "epochs": ("none", "integer", 0), "steps": ("20", "integer", 0), "dp": ("auto", "integer", 0),
           "tp": ("1", "integer", 0), "pp": ("1", "integer", 0), "zero": ("1", "integer", 0), "threads": ("auto", "integer", 0),
           "precision": ("fp32", "word", ["fp32", "bf16"]), "io-threads": ("auto", "integer", 0), "depth": ("4", "integer", 0),
           "prefetch-depth": ("auto", "integer", 0), "stage-data": ("none", "word", ["none"]), "deterministic": ("false", "flag", 0),
           "tp-overlap": ("false", "flag", 0), "recompute": ("none", "word", ["none", "selective", "full"]),
           "cuda-graph": ("auto", "word", ["auto", "off"]), "global-batch-size": ("8", "integer", 0), "lr": ("0.001", "number", 0),
           "clip-norm": ("none", "number", 0), "local-batch-size": ("none", "integer", 0), "run-dir": ("", "folder", 0),
           "micro-batch-size": ("auto", "integer", 0), "zero-shard-size": ("auto", "integer", 0),
           "keep-checkpoints": ("2", "integer", 0), "test-steps": ("none", "integer", 0), "data": ("builtin", "word", ["builtin", "hdf5"]),
           "train-data": ("", "path", 0), "task": ("classify", "word", 0), "image-size": ("32x16", "HxW", 0), "name": ("fake", "text", 0)}
ALIASES = {"data-parallel-size": "dp", "num-iters": "steps"}
for word in words:
    name = word[2:].partition("=")[0]
    if word.startswith("--no-") and OPTIONS.get(name[3:], ("", ""))[1] == "flag":
        given[name[3:]] = "false"
    elif OPTIONS.get(name, ("", ""))[1] == "flag" and "=" not in word:
        given[name] = "true"
    elif OPTIONS.get(name, ("", "", 0))[2] and given[name] not in OPTIONS[name][2]:
        fail("command line: '%s' is '%s'; allowed: %s" % (name, given[name], ", ".join(OPTIONS[name][2])))
def layout(dp, tp, pp):
    mib = 100 // (dp * tp * pp)
    per_node = int(given.get("ranks-per-node", 1 << 20))
    return {"dp": dp, "tp": tp, "pp": pp, "micro_batch_size": 1, "fits": mib / 1024 <= float(given.get("memory-gib", 0.05 if given.get("name") == "on-51-mib" else 1e9)),
            "fullest_rank": {"bytes": mib << 20, "host_bytes": 0, "libraries": 3 << 20, "classes": {}},
            "bytes_between_nodes_per_step": {"data": 0.0, "tensor": 1.0 if tp > per_node else 0.0, "pipeline": 0.0}}
known = {name: given.get(name, default) for name, (default, *_) in OPTIONS.items()}
is_open = known["dp"] == "auto"
if not is_open and known["zero-shard-size"] != "auto" and int(known["dp"]) % int(known["zero-shard-size"]):
    fail("--zero-shard-size is %s, more than the %s ranks of --dp" % (known["zero-shard-size"], known["dp"]))
if "--version" in words:
    print("vit_hybrid 0.0.0\ncommit fake\nbuilt by hand")
elif "--print-config" in words:
    left_out = ""  # of the two ways to give the batch
    if "local-batch-size" in given:
        left_out = "global-batch-size" if is_open else "local-batch-size"
        known["global-batch-size"] = 8 if is_open else int(known["dp"]) * int(given["local-batch-size"])
    if not is_open and known["micro-batch-size"] == "auto":
        known["micro-batch-size"] = int(known["global-batch-size"]) // int(known["dp"])
    for name, value in known.items():
        print("%s%s: %s     # command line" % ("# " if name == left_out else "", name.replace("-", "_"), value))
elif words[:1] == ["options"]:
    print(json.dumps([{"command": "train", "options": [
        {"name": name, "type": kind, "aliases": [a for a in ALIASES if ALIASES[a] == name],
         "megatron": [{"name": "bf16", "is": "bf16"}] if name == "precision" else []} for name, (_, kind, _) in OPTIONS.items()]}]))
elif words[:1] == ["plan"]:
    ranks, batch = int(given["ranks"]), int(given.get("global-batch-size", 8))
    for name, why in (("zero", given.get("dp") == "1"), ("tp-overlap", given.get("tp") == "1"), ("cuda-graph", True)):
        if name in given and why:
            print("vit_hybrid: warning: --%s has no effect here: made up" % name, file=sys.stderr)
    if not is_open or "tp" in given:
        tp, pp = int(known["tp"]), int(known["pp"])
        dp = ranks // tp // pp if is_open else int(known["dp"])
        if dp > batch:
            fail("--global-batch-size is %d, fewer samples than the %d replicas (--dp)" % (batch, dp))
        if tp > 4:
            fail("2 problems in the configuration:\n  tensor degree (--tp) is %d, more than the 4 attention heads\n  another" % tp)
        print(json.dumps(layout(dp, tp, pp)))
    else:
        print(json.dumps([layout(ranks, 1, 1)]))
else:
    run = given["run-dir"]
    name = os.path.basename(os.path.dirname(run))
    with open(os.path.join(fakes, "started"), "a") as file:
        file.write(name + "\n")
    if name in lines("fail"):
        fail("out of memory: made up")
    rates = json.load(open(os.path.join(fakes, "rates.json")))
    figures = next(rates[key] for key in rates if name.startswith(key) or name.endswith(key))
    figures = figures if isinstance(figures, dict) else {"rate": figures}
    rate, epochs = figures["rate"], int(given.get("epochs", 0))
    dp, tp, pp = (int(given[key]) for key in ("dp", "tp", "pp"))
    steps, batch = 2 * epochs or int(given["test-steps"]), int(given.get("global-batch-size", 8))
    ranks, step = dp * tp * pp, batch / rate
    os.makedirs(run)
    metrics = open(os.path.join(run, "metrics.jsonl"), "w")
    metrics.write(json.dumps({"kind": "start", "layout": {"ranks": ranks, "nodes": int(os.environ.get("FAKE_NODES", 1)), "dp": dp,
        "tp": tp, "pp": pp}, "machine": {"cpu": "another one" if name in lines("other_cpu") else "made up", "cores": 4}, "time": time.time(),
        "kernels": {"GPU": gpu for gpu in lines("gpu")}, "model": {"parameters": 208074}, "precision": "fp32"}) + "\n")
    open(os.path.join(run, "config.yaml"), "w").write("".join("%s: %s\n" % (name.replace("-", "_"), given[name]) for name in given))
    if name in lines("hang"):
        metrics.write('{"kind":"st')
        metrics.flush()
        time.sleep(600)
    off = float((lines("off") or [0])[0]) if tp > 1 else 0.0
    for number in range(1, steps + 1):
        metrics.write(json.dumps({"kind": "step", "step": number, "loss": (1.0 + off * (number == steps)) / number}) + "\n")
    for epoch in range(1, epochs + 1):
        for kind, losses in (("epoch", figures.get("train", [])), ("valid", figures.get("valid", []))):
            if losses:
                metrics.write(json.dumps({"kind": kind, "epoch": epoch, "step": 2 * epoch, "loss": losses[epoch - 1]}) + "\n")
    seconds = {"step": steps * step, "forward": 0.25 * steps * step, "backward": 0.5 * steps * step, "reduce": 0.125 * steps * step,
               "optimizer": 0.0625 * steps * step, "data_wait": 0.0, "communication": 0.1 * steps * step}
    planned = 100 // ranks + 1 << 20  # a little more than by plan
    memory = {"total_peak": int(figures.get("mib", 100 / ranks) * (1 << 20)), "process_start": 100 << 20, "process_peak": 200 << 20, "allocator_peak": 0,
              "predicted_total": planned, "predicted_process": None if lines("gpu") else planned + (3 << 20)}
    spread = lambda value: {"min": value, "median": value, "mean": value, "std": 0.0}
    joules = figures.get("joules")
    predicted = {"time": {"predicted": {"step": float(factor) * step}} for factor in lines("predicted")}
    power = {"watts": None, "missing": "no counter"} if name in lines("no_power") else {"watts": 50.0}
    energy = {"unavailable": "made up: no counter"} if joules is None else {"source": "made up", "joules_per_sample": joules}
    json.dump({"steps": steps, "interrupted": False, "communication": [], "ranks": [{"rank": i, "seconds": seconds, "memory": memory} for i in range(ranks)],
               **predicted, **({"samples_per_s": rate, "energy": energy} if epochs else {"test": {"steps": steps, "seconds_spread": {"step": spread(step)}, "samples_per_s_spread": spread(rate),
                        "power": {"processors": power, "gpus": {"watts": None, "missing": "no GPU is used"}},
                        "whole_training": {"steps": 100, "duration": 100 * step + 8 * 0.5}}})},
              open(os.path.join(run, "summary.json"), "w"))
'''

LAUNCHER = r'''#!/bin/bash
shift 2
while [ "$1" = --host ]; do echo "host $2" >>"$FAKE_DIR/hosts"; shift 2; done
[ ! -e "$FAKE_DIR/broken" ] || cat "$FAKE_DIR/broken"
if [ -e "$FAKE_DIR/killed" ] && read -r who run < <(cat "$FAKE_DIR/killed"; echo) && [[ "$*" == *"$run"* ]]; then
  [ "$who" = rank ] || kill -KILL $$
  exit 137
fi
[ ! -e "$FAKE_DIR/broken" ] || exit 255
exec "$@"
'''

SBATCH = r'''#!/usr/bin/python3 -SE
import os, re, subprocess, sys
fakes = os.environ["FAKE_DIR"]
if os.path.exists(os.path.join(fakes, "no_sbatch")):
    sys.exit("sbatch: error: Batch job submission failed: Invalid account")
options = [word for word in sys.argv[1:] if word.startswith("--")]
script = next(i for i, word in enumerate(sys.argv) if i and not word.startswith("--"))
options = dict(word[2:].split("=", 1) for word in sys.argv[1:script] if "=" in word)
job = len([name for name in os.listdir(fakes) if name.endswith(".comment")]) + 1
environment = dict(os.environ, FAKE_NODES=options["nodes"])
body = '"$@"; echo $? >"$0.rc"'
job_file = os.path.join(fakes, f"job{job}")
output = re.sub("%(.)", lambda found: "%" if found[1] == "%" else str(job), options["output"])
process = subprocess.Popen(["bash", "-c", body, job_file, "bash", *sys.argv[script:]], stdout=open(output, "w"),
                           stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, start_new_session=True, env=environment)
open(job_file, "w").write(f"{process.pid} {options['ntasks-per-node']} {options['job-name']} {options.get('account')}")
open(job_file + ".comment", "w").write(options["comment"])
if os.path.exists(os.path.join(fakes, "kill_study")):
    os.kill(os.getppid(), 9)
print(f"{job};cluster")
'''

SQUEUE = r'''#!/bin/bash
shopt -s nullglob
cd "$FAKE_DIR" || exit 1
for file in job*.comment; do
  job=${file%.comment}
  read -r pid _ <"$job"
  if [ ! -e "$job.rc" ] && kill -0 "$pid" 2>/dev/null; then
    echo "${job#job}" >>seen_running
    echo "${job#job} RUNNING $(cat "$file")"
  elif [ -e squeue_knows ]; then
    echo "${job#job} COMPLETED $(cat "$file")"
  fi
done
'''

SACCT = r'''#!/bin/bash
for word; do case $word in --jobs=*) job=${word#*=} ;; esac; done
! rm "$FAKE_DIR/sacct_lags" 2>/dev/null || { echo "RUNNING|0:0"; exit; }
rc=$(cat "$FAKE_DIR/job$job.rc" 2>/dev/null)
case $rc in 0) echo "COMPLETED|0:0" ;; '') echo "CANCELLED by 0|0:9" ;; *) echo "FAILED|$rc:0" ;; esac
'''


def make_fakes(folder):
    """Writes them into a folder. Returns the environment in which scripts find them."""
    folder = Path(folder)
    folder.mkdir(parents=True)
    for name, text in (("vit_hybrid", PROGRAM), ("fake_mpirun", LAUNCHER), ("sbatch", SBATCH), ("squeue", SQUEUE), ("sacct", SACCT)):
        path = folder / name
        path.write_text(text)
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return dict(os.environ, FAKE_DIR=str(folder), VIT_HYBRID=str(folder / "vit_hybrid"), PATH=f"{folder}:{os.environ['PATH']}",
                OMP_NUM_THREADS="1")


def set_rates(folder, rates):
    Path(folder, "rates.json").write_text(json.dumps(rates))


def expect(condition, text):
    if not condition:
        FAILURES.append(text)
        print("FAILED:", text)


def near(value, wanted):
    return value is not None and abs(value - wanted) <= 1e-9 * abs(wanted)


def wait_until(holds, otherwise):
    """Ends the test with a text where that does not come to be within two minutes."""
    for _ in range(2400):
        if holds():
            return
        time.sleep(0.05)
    raise SystemExit(otherwise)


def run_real(script, program, launcher, *words):
    """What a script said and ended with that ran the real program by a launcher, whose last word takes the number of ranks."""
    done = subprocess.run([script, f"--launcher={' '.join(launcher[:-1])}", *words], env=dict(os.environ, VIT_HYBRID=program),
                          capture_output=True, text=True, timeout=560, check=False)
    if "install what it needs" in done.stderr:
        print("[skipped]", done.stderr.strip())
        sys.exit(77)
    expect(done.returncode == 0, f"the real program: {done.returncode} {done.stderr}")
    return done


class Bench:
    """Runs the script with the fakes in a folder of its own."""

    def __init__(self, script, work):
        self.script, self.work, self.fakes = script, work, work / "fakes"
        self.environment = make_fakes(self.fakes)

    def set(self, name, *words):
        (self.fakes / name).write_text("\n".join(words))

    def begin(self, *words, launcher=True):
        own = [f"--launcher={self.fakes / 'fake_mpirun'}"] if launcher else []
        return subprocess.Popen([self.script, *own, *words], cwd=self.work, env=self.environment, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True)

    def run(self, *words, launcher=True):
        process = self.begin(*words, launcher=launcher)
        process.out, process.err = process.communicate(timeout=120)
        if "install what it needs" in process.err:
            print("[skipped]", process.err.strip())
            sys.exit(77)
        expect("Traceback" not in process.err, f"{words}: {process.err}")
        return process

    def started(self):
        path = self.fakes / "started"
        return path.read_text().split() if path.exists() else []

    def wait_for_look(self, job):
        """Until somebody is told that a job of Slurm runs."""
        path = self.fakes / "seen_running"
        path.unlink(missing_ok=True)
        wait_until(lambda: path.exists() and job in path.read_text().split(), f"nobody looked at job {job}")

    def forget(self):
        for name in ("started", "fail", "hang", "off", "hosts", "broken", "killed", "predicted", "config", "gpu", "other_cpu", "no_power",
                     "squeue_knows", "sacct_lags"):
            (self.fakes / name).unlink(missing_ok=True)

    def wait_for(self, name):
        wait_until(lambda: name in self.started(), f"{name} was never started")


def results_of(folder):
    return json.loads((folder / "results.json").read_text())


def check_records(work):
    """What the studies of a folder have left, against docs/schemas."""
    folder = Path(__file__).resolve().parent
    done = subprocess.run([folder / "../interop/interop.sh", "../program/schemas.py", "jsonschema", "--studies", work],
                          capture_output=True, text=True, check=False)
    print(done.stdout.strip())
    expect(done.returncode in (0, 77), f"records of studies: {done.stdout} {done.stderr}")
