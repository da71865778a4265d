#!/usr/bin/env bash
# Predicts the time of a step over "nodes" (tests/cluster/nodes.sh) of one rank each, and sets the measured one beside it.
#
#   time_model_nodes.sh PROGRAM WORK_DIR NODES [RATE]
#
# RATE limits what leaves each node (of `tc`, for instance 1gbit). The nodes are calibrated as they are, all at one time, as
# they then train: no more than the machine has cores, or they share them without knowing. Of each training: predicted and
# measured seconds of a step, the ratio, and the phases.
set -euo pipefail

program=$(readlink -f "$1") count=$3 rate=${4:-}
# shellcheck source=tests/cluster/nodes.sh
. "$(dirname "${BASH_SOURCE[0]}")/../cluster/nodes.sh"
make_nodes "$count" "$2"
export OMPI_MCA_mpi_yield_when_idle=1 OMP_NUM_THREADS=1
if [ -n "$rate" ]; then
  for node in "${nodes[@]}"; do ip netns exec "$node" tc qdisc add dev eth0 root tbf rate "$rate" burst 256kb latency 100ms; done
fi
hosts=$(IFS=,; echo "${nodes[*]}")
start=(mpirun -q --host "$hosts" --oversubscribe --bind-to none -n "$count" -x OMP_NUM_THREADS -x OMPI_MCA_mpi_yield_when_idle "$program")
"${start[@]}" calibrate --out machine.json --precision fp32 --threads 1 >calibrate.txt 2>&1
sed -n '/"between_nodes"/,/}/p' machine.json

# train OPTION...
train() {
  local words=(--data synthetic --dp "$count" --precision fp32 --threads 1 --device cpu "$@") run=run-$#-$RANDOM
  "$program" plan "${words[@]}" --ranks "$count" --ranks-per-node 1 --machine machine.json --json >plan.json
  "${start[@]}" "${words[@]}" --test-steps 10 --warmup 3 --run-dir "$run" >"$run.txt" 2>&1
  python3 - plan.json "$run" "$*" <<'PYTHON'
import json, statistics, sys
plan = json.load(open(sys.argv[1]))
time = plan["seconds_per_step"]
steps = [json.loads(line) for line in open(sys.argv[2] + "/metrics.jsonl") if '"kind":"step"' in line][3:]
seconds = {part: statistics.median(step["seconds"].get(part, 0.0) for step in steps) for part in steps[0]["seconds"]}
print(f"{sys.argv[3]}: predicted {time['step']:.3f} s, measured {seconds['step']:.3f} s, ratio {time['step'] / seconds['step']:.3f}")
for part in ("forward", "backward", "reduce", "optimizer"):
    print(f"  {part}: predicted {time[part]:.3f}, measured {seconds.get(part, 0.0):.3f}")
PYTHON
}

train --preset vit-s16 --global-batch-size $((4 * count)) --micro-batch-size 4
train --preset vit-s16 --global-batch-size $((8 * count)) --micro-batch-size 8
train --preset vit-s16 --global-batch-size $((8 * count)) --micro-batch-size 4
train --preset vit-ti16 --global-batch-size $((8 * count)) --micro-batch-size 8 --zero 0
