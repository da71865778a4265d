#!/usr/bin/env bash
# launch/scaling_study on a real Slurm of four nodes: the study is stopped and given again while its jobs go on, a job is
# cancelled while it trains, and a third call runs that point alone.
#
#   slurm_study.sh PROGRAM WORK_DIR
#
# Exit code 77, with the reason, where Slurm is not installed or cannot run, or matplotlib is missing.
set -euo pipefail

program=$(readlink -f "$1")
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
# shellcheck source=tests/cluster/slurm.sh
. "$(dirname "${BASH_SOURCE[0]}")/slurm.sh"
needs_matplotlib

slurm_folder "$2"
start_slurm 4 1
cat >model.yaml <<TEXT
small:
  data: builtin
  depth: 3
  embed_dim: 96
  num_heads: 4
  generated_samples: 64
  generated_valid_samples: 0
  global_batch_size: 16
  micro_batch_size: 4
TEXT
cat >job.sh <<TEXT
#!/usr/bin/env bash
#SBATCH --nodes=3
#SBATCH --time=00:10:00
export OMP_NUM_THREADS=1 OMPI_MCA_mpi_yield_when_idle=1
srun $program --threads 1 "\$@"
TEXT
export VIT_HYBRID=$program
largest=n4-dp4-tp1-pp1-b16-r1

begin_study() {
  "$root/launch/scaling_study" --config model.yaml:small --nodes 1,2,4 --ranks-per-node 1 --slurm job.sh --mode strong \
    --layouts dp --repeat 1 --steps 150 --out study >"$1.txt" 2>&1 &
  study=$!
}

job_of() { sed -n 's/.*"job": "\([0-9]*\)".*/\1/p' "study/points/$1/state.json"; }

echo "+ a study of 1, 2 and 4 nodes is stopped while its first jobs train"
begin_study 1
wait_for 60 trains n1-dp1-tp1-pp1-b16-r1 || complain "the smallest point does not train: $(cat 1.txt)"
kill -TERM "$study"
end_study 1 75
says 1 '^scaling_study: stopped.*Slurm jobs go on, and the same command collects them'

echo "+ the same command waits for them; the job of 4 nodes is cancelled while it trains"
begin_study 2
wait_for 200 trains $largest || complain "the largest point does not train: $(cat 2.txt)"
cancelled=$(job_of $largest)
scancel "$cancelled"
end_study 2 1
says 2 "$largest: waiting for the job of an earlier call"
says 2 "^scaling_study: \[[0-9]+ s\] $largest of 3 runs: failed: .*Slurm job $cancelled ended as CANCELLED"
[ "$(grep -c "^scaling_study: \[.*failed" 2.txt)" = 1 ] || complain "not one line on the job that was cancelled: $(cat 2.txt)"
for name in n1-dp1-tp1-pp1-b16-r1 n2-dp2-tp1-pp1-b16-r1; do
  says 2 "$name of 3 runs: done"
  cp "study/points/$name/run/summary.json" "$name.json"
done

echo "+ the same command runs that point again, and no other"
begin_study 3
end_study 3 0
says 3 '2 of 3 runs are there already'
says 3 "$largest of 3 runs: done"
says_not 3 'n[12]-dp.*(done|waiting)'
[ "$(job_of $largest)" -gt "$cancelled" ] || complain "the point of 4 nodes has no new job"
for name in n1-dp1-tp1-pp1-b16-r1 n2-dp2-tp1-pp1-b16-r1; do
  cmp -s "study/points/$name/run/summary.json" "$name.json" || complain "$name was run again"
done

python3 - <<'PYTHON' || complain "the figures of the study are wrong"
import csv, json, math
rows = {int(row["nodes"]): row for row in csv.DictReader(open("study/points.csv", encoding="utf-8"))}
assert sorted(rows) == [1, 2, 4], rows
rates = {}
for nodes, row in rows.items():
    folder = f"study/points/n{nodes}-dp{nodes}-tp1-pp1-b16-r1/run"
    summary = json.load(open(folder + "/summary.json", encoding="utf-8"))
    start = json.loads(open(folder + "/metrics.jsonl", encoding="utf-8").readline())
    assert start["layout"]["nodes"] == start["layout"]["ranks"] == nodes, start["layout"]  # Slurm's nodes, not this machine
    rates[nodes] = summary["test"]["samples_per_s_spread"]["median"]
    wanted = {"mode": "strong", "units": str(nodes), "ranks": str(nodes), "layout": f"dp{nodes}-tp1-pp1", "runs": "1",
              "failed": "0", "global_batch_size": "16", "on_curve": "true"}
    assert {key: row[key] for key in wanted} == wanted, row
    speed = rates[nodes] / rates[1]
    for key, value in (("samples_per_s", rates[nodes]), ("speed_up", speed), ("efficiency", speed / nodes)):
        assert math.isclose(float(row[key]), value, rel_tol=1e-9), (key, row[key], value)
    assert math.isclose(float(row["node_hours"]), nodes * float(row["training_seconds"]) / 3600, rel_tol=1e-9), row
    assert math.isclose(float(row["step_seconds"]), summary["test"]["seconds_spread"]["step"]["median"], rel_tol=1e-9), row
results = json.load(open("study/results.json", encoding="utf-8"))
assert results["losses"][0]["runs"] == 3 and results["losses"][0]["agree"], results["losses"]
page = open("study/report.html", encoding="utf-8").read()
assert page.count("<svg") >= 3 and "failed" not in page and "CANCELLED" not in page, "the report"
PYTHON
[ "$(grep -c $'^ *[124]  *dp' 3.txt)" = 3 ] || complain "not a line of the table for each point: $(cat 3.txt)"
echo "slurm_study: passed"
