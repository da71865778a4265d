"""Stand-ins for the tests of studies: a program whose runs have made-up figures, a launcher that starts it once, and Slurm's
commands. What they do is told by files of the folder FAKE_DIR:

    rates.json      {"n2-...-r1": samples/s}, by the end of the run's name that fits
    fail, hang      names of runs, one a line: fail ends with 64 and a line, hang leaves half a run and sleeps
    started         the names of the runs that were started, in their order
"""
import json
import os
import stat
from pathlib import Path

PROGRAM = r'''#!/usr/bin/python3 -SE
import json, os, sys, time
fakes = os.environ["FAKE_DIR"]
def lines(name):
    path = os.path.join(fakes, name)
    return open(path).read().split() if os.path.exists(path) else []
words = sys.argv[1:]
given = dict(word[2:].split("=", 1) for word in words if word.startswith("--") and "=" in word)
def fail(text):
    print("vit_hybrid: " + text, file=sys.stderr)
    sys.exit(64)
def layout(dp, tp, pp):
    mib = 100 // (dp * tp * pp)
    per_node = int(given.get("ranks-per-node", 1 << 20))
    return {"dp": dp, "tp": tp, "pp": pp, "micro_batch_size": 1, "fits": mib / 1024 <= float(given.get("memory-gib", 1e9)),
            "fullest_rank": {"bytes": mib << 20, "classes": {}},
            "bytes_between_nodes_per_step": {"data": 0.0, "tensor": 1.0 if tp > per_node else 0.0, "pipeline": 0.0}}
if "--version" in words:
    print("vit_hybrid 0.0.0\ncommit fake\nbuilt by hand")
elif "--print-config" in words:
    print("name: fake\nprecision: fp32\nglobal_batch_size: %s     # command line\nlocal_batch_size: none\ndepth: %s"
          % (given.get("global-batch-size", 8), given.get("depth", 4)))
elif words[:1] == ["plan"]:
    ranks, batch = int(given["ranks"]), int(given["global-batch-size"])
    if "dp" in given:
        dp, tp, pp = (int(given[axis]) for axis in ("dp", "tp", "pp"))
        if dp > batch:
            fail("--global-batch-size is %d, fewer samples than the %d replicas (--dp)" % (batch, dp))
        print(json.dumps(layout(dp, tp, pp)))
    else:
        print(json.dumps([layout(ranks, 1, 1)]))
else:
    run = given["run-dir"]
    name = os.path.basename(os.path.dirname(run))
    with open(os.path.join(fakes, "started"), "a") as file:
        file.write(name + "\n")
    if name in lines("fail"):
        fail("out of memory: made up for " + name)
    rates = json.load(open(os.path.join(fakes, "rates.json")))
    rate = next(rates[key] for key in rates if name.startswith(key) or name.endswith(key))
    dp, tp, pp, steps, batch = (int(given[key]) for key in ("dp", "tp", "pp", "test-steps", "global-batch-size"))
    ranks, step = dp * tp * pp, batch / rate
    os.makedirs(run)
    metrics = open(os.path.join(run, "metrics.jsonl"), "w")
    metrics.write(json.dumps({"kind": "start", "layout": {"ranks": ranks, "nodes": int(os.environ.get("FAKE_NODES", 1)), "dp": dp,
        "tp": tp, "pp": pp}, "machine": {"cpu": "made up", "cores": 4}, "model": {"parameters": 1000}, "precision": "fp32"}) + "\n")
    open(os.path.join(run, "config.yaml"), "w").write("precision: fp32\n")
    if name in lines("hang"):
        metrics.write('{"kind":"st')
        metrics.flush()
        time.sleep(600)
    off = float((lines("off") or [0])[0]) if tp > 1 else 0.0
    for number in range(1, steps + 1):
        metrics.write(json.dumps({"kind": "step", "step": number, "loss": (1.0 + off * (number == steps)) / number}) + "\n")
    seconds = {"step": steps * step, "forward": 0.25 * steps * step, "backward": 0.5 * steps * step, "reduce": 0.125 * steps * step,
               "optimizer": 0.0625 * steps * step, "data_wait": 0.0, "communication": 0.1 * steps * step}
    memory = {"total_peak": (100 << 20) // ranks, "process_peak": 200 << 20, "device_peak": 0}
    spread = lambda value: {"min": value, "median": value, "mean": value, "std": 0.0}
    json.dump({"steps": steps, "interrupted": False, "ranks": [{"rank": i, "seconds": seconds, "memory": memory} for i in range(ranks)],
               "test": {"steps": steps, "seconds_spread": {"step": spread(step)}, "samples_per_s_spread": spread(rate),
                        "power": {"processors": {"watts": 50.0}, "gpus": {"watts": None, "missing": "no GPU is used"}},
                        "whole_training": {"steps": 100, "duration": 100 * step}}},
              open(os.path.join(run, "summary.json"), "w"))
'''

LAUNCHER = '#!/bin/bash\nshift 2\nwhile [ "$1" = --host ]; do echo "host $2" >>"$FAKE_DIR/hosts"; shift 2; done\nexec "$@"\n'

SBATCH = r'''#!/usr/bin/python3 -SE
import os, subprocess, sys
fakes = os.environ["FAKE_DIR"]
if os.path.exists(os.path.join(fakes, "no_sbatch")):
    sys.exit("sbatch: error: Batch job submission failed: Invalid account")
options = [word for word in sys.argv[1:] if word.startswith("--")]
script = next(i for i, word in enumerate(sys.argv) if i and not word.startswith("--"))
options = dict(word[2:].split("=", 1) for word in sys.argv[1:script] if "=" in word)
job = len([name for name in os.listdir(fakes) if name.startswith("job")]) + 1
environment = dict(os.environ, FAKE_NODES=options["nodes"])
body = '"$@"; echo $? >"$0.rc"'
job_file = os.path.join(fakes, f"job{job}")
process = subprocess.Popen(["bash", "-c", body, job_file, "bash", *sys.argv[script:]], stdout=open(options["output"], "w"),
                           stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, start_new_session=True, env=environment)
open(job_file, "w").write(f"{process.pid} {options['ntasks-per-node']} {options['job-name']} {options.get('account')}")
print(f"{job};cluster")
'''

SQUEUE = r'''#!/bin/bash
for word; do case $word in --jobs=*) job=${word#*=} ;; esac; done
read -r pid _ <"$FAKE_DIR/job$job"
[ -e "$FAKE_DIR/job$job.rc" ] || ! kill -0 "$pid" 2>/dev/null || { echo RUNNING; exit; }
echo "slurm_load_jobs error: Invalid job id specified" >&2
exit 1
'''

SACCT = r'''#!/bin/bash
for word; do case $word in --jobs=*) job=${word#*=} ;; esac; done
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
    return dict(os.environ, FAKE_DIR=str(folder), VIT_HYBRID=str(folder / "vit_hybrid"), PATH=f"{folder}:{os.environ['PATH']}")


def set_rates(folder, rates):
    Path(folder, "rates.json").write_text(json.dumps(rates))
