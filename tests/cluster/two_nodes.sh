#!/usr/bin/env bash
# Runs mpirun over two "nodes" (nodes.sh): each axis in turn crosses the border between them, and a rank does not start.
#
#   two_nodes.sh PROGRAM WORK_DIR
#
# Exit code 77, with the reason, where the privileges or commands for it are missing.
set -euo pipefail

program=$(readlink -f "$1")
# shellcheck source=tests/cluster/nodes.sh
. "$(dirname "${BASH_SOURCE[0]}")/nodes.sh"
make_nodes 2 "$2"
vh_ranks 8
count=0

run_over_nodes() {
  mpirun -q --host "${nodes[0]}:4,${nodes[1]}:4" --oversubscribe --bind-to none -n 8 \
    -x OMP_NUM_THREADS -x OMPI_MCA_mpi_yield_when_idle "$@"
}

hosts=$(run_over_nodes hostname | sort | uniq -c | awk '{print $1}' | tr '\n' ' ')
[ "$hosts" = "4 4 " ] || { echo "two_nodes: ranks per host name are '$hosts', not '4 4'" >&2; exit 1; }

# The loss of the last step of a run.
last_loss() {
  sed -n '/"kind":"step"/s/.*"loss":\([^,]*\),.*/\1/p' "$work/run$1/metrics.jsonl" | tail -n 1
}

# Each axis in turn crosses the border between the nodes; the numbers stay the same up to rounding in fp32.
for layout in "--dp 2 --tp 2 --pp 2" "--dp 8 --tp 1 --pp 1" "--dp 2 --tp 4 --pp 1 --order dp-tp-pp"; do
  count=$((count + 1))
  echo "+ mpirun over ${nodes[*]}: vit_hybrid $layout --steps 2"
  # shellcheck disable=SC2086
  run_over_nodes "$program" $layout --steps 2 --run-dir "$work/run$count" ||
    { echo "two_nodes: failed with exit code $?" >&2; exit 1; }
  [ -e "$work/run$count/summary.json" ] || { echo "two_nodes: no summary.json" >&2; exit 1; }
  awk -v a="$(last_loss 1)" -v b="$(last_loss $count)" 'BEGIN {
    d = a - b; if (d < 0) d = -d
    if (!(a > 0) || !(d < 1e-4 * a)) { printf "two_nodes: losses %s and %s differ\n", a, b; exit 1 }
  }'
done
# A rank that does not start, before nodes know each other's addresses: the other node names who is not there.
echo "+ mpirun over ${nodes[*]}: rank 7 does not start"
set +e
message=$(VIT_HYBRID_TIMEOUT=3 timeout 60 mpirun -q --host "${nodes[0]}:7,${nodes[1]}:1" --oversubscribe --bind-to none -n 8 \
  -x VIT_HYBRID_TIMEOUT \
  bash -c '[ "$OMPI_COMM_WORLD_RANK" = 7 ] && exec sleep 50; exec "$0" --steps 2 --run-dir none' "$program" 2>&1)
code=$?
set -e
expected="none of those that are known has stopped; rank 7, on another node, cannot be asked before MPI_Init has ended; "
if [ $code != 74 ] || [[ $message != *"$expected"* ]]; then
  echo "two_nodes: exit code $code, not 74, or another message: $message" >&2
  exit 1
fi
echo "two_nodes: passed"
