#!/usr/bin/env bash
# Sixteen "nodes" (nodes.sh) of one rank each, which exchange in two steps (NodeSteps): after three steps they have the tensors that sixteen
# ranks on one node have with the same blocks of sums, bit for bit.
#
#   sixteen_nodes.sh PROGRAM WORK_DIR
#
# Exit code 77, with the reason, where the privileges or commands for it are missing.
set -euo pipefail

program=$(readlink -f "$1")
# shellcheck source=tests/cluster/nodes.sh
. "$(dirname "${BASH_SOURCE[0]}")/nodes.sh"
make_nodes 16 "$2"
export OMPI_MCA_mpi_yield_when_idle=1 OMP_NUM_THREADS=1
complain() { echo "$test_name: $*" >&2; exit 1; }

words=(--dp 16 --global-batch-size 32 --generated-samples 96 --generated-valid-samples 0 --threads 1 --steps 3 --dropout 0.1 --deterministic)
train() {
  local name=$1
  shift
  "$@" "${words[@]}" --run-dir "$name" >"$name.txt" 2>&1 || complain "$name ends with code $?: $(tail -n 3 "$name.txt")"
}

hosts=$(IFS=,; echo "${nodes[*]}")
train many mpirun -q --host "$hosts" --oversubscribe --bind-to none -n 16 -x OMP_NUM_THREADS -x OMPI_MCA_mpi_yield_when_idle "$program"
grep -q "nodes     of 16 x 1 ranks" many.txt || complain "not on sixteen nodes: $(head -n 30 many.txt)"
words+=(--sum-blocks "$(printf '1,%.0s' {1..15})1")
train one mpirun -q --oversubscribe --bind-to none -n 16 "$program"
"$program" checkpoint diff many/checkpoints/*3.h5 one/checkpoints/*3.h5 >diff.txt || complain "other bits: $(tail -n 3 diff.txt)"
echo "$test_name: passed"
