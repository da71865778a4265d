#!/usr/bin/env bash
# launch/scaling_study over the hosts of mpirun, two "nodes" (nodes.sh): the study is stopped while a run trains on both, ends
# that run, and goes on with it when it is given again.
#
#   hosts_study.sh PROGRAM WORK_DIR
#
# Exit code 77, with the reason, where the privileges or commands for it are missing, or matplotlib.
set -euo pipefail

program=$(readlink -f "$1")
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
# shellcheck source=tests/cluster/nodes.sh
. "$(dirname "${BASH_SOURCE[0]}")/nodes.sh"
needs_matplotlib
make_nodes 2 "$2"
export VIT_HYBRID=$program OMPI_MCA_mpi_yield_when_idle=1

complain() { echo "$test_name: $*" >&2; exit 1; }

begin_study() {
  "$root/launch/scaling_study" --nodes 1,2 --ranks-per-node 2 --hosts "${nodes[0]},${nodes[1]}" --layouts dp,tp4 --repeat 1 \
    --steps 100 --out study -- --depth 2 --embed-dim 64 --generated-valid-samples 0 --threads 1 >"$1.txt" 2>&1 &
  study=$!
}

processes() { ip netns pids "${nodes[0]}"; ip netns pids "${nodes[1]}"; }

small=n2-dp2-tp1-pp1-b16-r1
both=(n4-dp4-tp1-pp1-b16-r1 n4-dp1-tp4-pp1-b16-r1)
none_is_left() { [ -z "$(processes)" ]; }

echo "+ a study over ${nodes[*]} is stopped while it trains on both"
begin_study 1
wait_for 60 trains "${both[0]}" || complain "nothing trains on both nodes: $(cat 1.txt)"
[ "$(processes | wc -l)" -ge 4 ] || complain "no processes on the nodes"
kill -TERM "$study"
end_study 1 75
says 1 "$small of 3 runs: done"
says 1 '^scaling_study: stopped by SIGTERM; the same command goes on'
wait_for 60 none_is_left || complain "processes of the stopped run are left: $(processes | xargs ps -o pid,args -p)"
cp "study/points/$small/run/summary.json" small.json

echo "+ the same command goes on"
begin_study 2
end_study 2 0
says 2 '1 of 3 runs are there already'
for name in "${both[@]}"; do says 2 "$name of 3 runs: done"; done
cmp -s "study/points/$small/run/summary.json" small.json || complain "$small was run again"
says 2 'warning: A tensor group spans nodes in n4-dp1-tp4-pp1-b16:'

python3 - <<'PYTHON' || complain "the figures of the study are wrong"
import csv, json, math
rows = {row["layout"]: row for row in csv.DictReader(open("study/points.csv", encoding="utf-8"))}
assert sorted(rows) == ["dp1-tp4-pp1", "dp2-tp1-pp1", "dp4-tp1-pp1"], rows
rates = {}
for layout, row in rows.items():
    nodes = 1 if layout == "dp2-tp1-pp1" else 2
    folder = f"study/points/n{2 * nodes}-{layout}-b16-r1/run"
    start = json.loads(open(folder + "/metrics.jsonl", encoding="utf-8").readline())
    assert start["layout"]["nodes"] == nodes and start["layout"]["ranks"] == 2 * nodes, start["layout"]
    rates[layout] = json.load(open(folder + "/summary.json", encoding="utf-8"))["test"]["samples_per_s_spread"]["median"]
    assert (row["units"], row["nodes"], row["ranks"], row["runs"]) == (str(nodes), str(nodes), str(2 * nodes), "1"), row
    assert math.isclose(float(row["samples_per_s"]), rates[layout], rel_tol=1e-9), row
for layout, row in rows.items():
    speed = rates[layout] / rates["dp2-tp1-pp1"]
    assert math.isclose(float(row["speed_up"]), speed, rel_tol=1e-9), row
    assert math.isclose(float(row["efficiency"]), speed / int(row["units"]), rel_tol=1e-9), row
losses = json.load(open("study/results.json", encoding="utf-8"))["losses"]
assert losses[0]["runs"] == 3 and losses[0]["agree"], losses
PYTHON
echo "hosts_study: passed"
