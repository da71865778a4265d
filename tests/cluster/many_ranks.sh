#!/usr/bin/env bash
# Many ranks on eight "nodes" (nodes.sh): a job starts, trains ten steps, and stops; its rows of ranks are in ranks.h5 where there
# are more than 64; no file and no line of the log is there for each rank. Prints what grows with the number of ranks.
#
#   many_ranks.sh PROGRAM WORK_DIR [RANKS...]      RANKS: multiples of 8, by default 16 and 96
#
# Exit code 77, with the reason, where the privileges or commands for it are missing.
set -euo pipefail

program=$(readlink -f "$1")
# shellcheck source=tests/cluster/nodes.sh
. "$(dirname "${BASH_SOURCE[0]}")/nodes.sh"
launch=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../launch" && pwd)
make_nodes 8 "$2"
shift 2
[ $# -gt 0 ] || set -- 16 96
export OMPI_MCA_mpi_yield_when_idle=1
complain() { echo "$test_name: $*" >&2; exit 1; }
python=python3
"$python" -c "import h5py" 2>/dev/null || python=/usr/bin/python3
"$python" -c "import h5py" 2>/dev/null || skip "no Python with h5py"

for ranks in "$@"; do
  hosts=$(printf "%s:$((ranks / 8))," "${nodes[@]}")
  began=$(date +%s.%N)
  mpirun -q --host "${hosts%,}" --oversubscribe --bind-to none -n "$ranks" -x OMP_NUM_THREADS=1 -x OMPI_MCA_mpi_yield_when_idle \
    "$program" --dp $((ranks / 4)) --tp 2 --pp 2 --global-batch-size "$ranks" --micro-batch-size 2 --steps 10 --threads 1 \
    --timeout 300 --keep-checkpoints 1 --run-dir "$ranks" >"$ranks.txt" 2>&1 ||
    complain "$ranks ranks: exit code $?: $(tail -n 5 "$ranks.txt")"
  "$python" - "$ranks" "$launch" "$began" "${nodes[@]}" <<'PYTHON' || complain "$ranks ranks: see above"
import json, os, sys, time
ranks, launch, began, nodes = int(sys.argv[1]), sys.argv[2], float(sys.argv[3]), sys.argv[4:]
seconds = time.time() - began
sys.path.insert(0, launch)
from run_folder import Run, figure
run = Run(str(ranks))
assert not run.notes, run.notes
assert [rank["rank"] for rank in run.ranks] == list(range(ranks)), run.ranks
assert [rank["host"] for rank in run.ranks] == [nodes[i * 8 // ranks] for i in range(ranks)], "the nodes of the ranks"
assert ("ranks" in run.summary) == (ranks <= 64) and ("ranks_file" in run.summary) == (ranks > 64), sorted(run.summary)
for rank in run.ranks:
    assert abs(rank["seconds"]["step"] - run.ranks[0]["seconds"]["step"]) < 0.2 * seconds, rank
    assert rank["memory"]["peak"]["parameters"] == rank["memory"]["predicted"]["parameters"] and rank["slow"] is not None, rank
    # Figures of a validation, of losses and of norms are not planned; and not every rank has its turn with the longest sums.
    counted, planned = (rank["memory"][of]["communication"] for of in ("peak", "predicted"))
    assert 0 < counted <= planned + (64 << 10), (rank["rank"], counted, planned)
counted, planned = (max(rank["memory"][of]["communication"] for rank in run.ranks) for of in ("peak", "predicted"))
assert planned <= 1.2 * counted, (counted, planned)
assert run.summary["deciding"]["host"] in nodes
files = sum(len(names) for _, _, names in os.walk(str(ranks)))
lines = open(f"{ranks}.txt", encoding="utf-8").read().splitlines()
assert files < 20 and len(lines) < 90, (files, len(lines), lines)
largest = lambda *keys: max(figure(rank, "memory", *keys) for rank in run.ranks) / (1 << 20)
print(f"{ranks:5} ranks: first step after {run.summary['seconds_to_first_step']:.1f} s, {seconds:.1f} s in all, "
      f"a step {run.ranks[0]['seconds']['step'] / 10:.2f} s; process at its start {largest('process_start'):.1f} MiB, at most "
      f"{largest('process_peak'):.1f} MiB, tensors of communication {largest('peak', 'communication'):.2f} MiB; {files} files, "
      f"{len(lines)} lines, summary {os.path.getsize(f'{ranks}/summary.json')} bytes, metrics {os.path.getsize(f'{ranks}/metrics.jsonl')} bytes", flush=True)
PYTHON
done
