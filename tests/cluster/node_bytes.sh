#!/usr/bin/env bash
# What leaves a node in a step, by the counters of the nodes' interfaces, on two to four "nodes" (nodes.sh) of four ranks: a node
# speaks once, so it is at most 1.05 times 2 S (n - 1) / n for S bytes of parameters over n nodes. And the same run on one node
# with --sum-blocks of those nodes has the same bits.
#
#   node_bytes.sh PROGRAM WORK_DIR
#
# Exit code 77, with the reason, where the privileges or commands for it are missing.
set -euo pipefail

program=$(readlink -f "$1")
# shellcheck source=tests/cluster/nodes.sh
. "$(dirname "${BASH_SOURCE[0]}")/nodes.sh"
make_nodes 4 "$2"
export OMPI_MCA_mpi_yield_when_idle=1
complain() { echo "$test_name: $*" >&2; exit 1; }

# 5.6 million parameters, 22 MB of fp32.
options=(--embed-dim 384 --depth 3 --mlp-hidden 1536 --num-heads 6 --global-batch-size 16 --micro-batch-size 1
  --generated-valid-samples 0 --threads 1 --keep-checkpoints 1)

# What each node has sent so far.
bytes_sent() {
  local node
  for node in "${nodes[@]}"; do ip netns exec "$node" cat /sys/class/net/eth0/statistics/tx_bytes; done
}

map=slot  # how the launcher deals ranks out

# train NAME STEPS HOSTS RANKS OPTION...
train() {
  local name=$1 steps=$2 hosts=$3 ranks=$4
  shift 4
  mpirun -q --host "$hosts" --oversubscribe --map-by "$map" --bind-to none -n "$ranks" -x OMP_NUM_THREADS -x OMPI_MCA_mpi_yield_when_idle \
    "$program" "${options[@]}" --steps "$steps" --run-dir "$name" "$@" >"$name.txt" 2>&1 ||
    complain "$name failed with exit code $?: $(tail -n 5 "$name.txt")"
}

# compare NAME HOSTS RANKS NODES OPTION...: 3 and 8 steps, whose difference has no start and no end in it, and their bits on one
# node.
compare() {
  local name=$1 hosts=$2 ranks=$3 num_nodes=$4 blocks
  shift 4
  echo "+ $name: $* on $hosts"
  local first second third
  mapfile -t first < <(bytes_sent)
  train "$name-3" 3 "$hosts" "$ranks" "$@"
  mapfile -t second < <(bytes_sent)
  train "$name-8" 8 "$hosts" "$ranks" "$@"
  mapfile -t third < <(bytes_sent)
  python3 - "$name-8" "$num_nodes" "${first[*]}" "${second[*]}" "${third[*]}" <<'PYTHON' || complain "$name sends too much"
import json, sys
name, nodes = sys.argv[1], int(sys.argv[2])
first, second, third = ([int(word) for word in text.split()] for text in sys.argv[3:])
start = json.loads(open(name + "/metrics.jsonl", encoding="utf-8").readline())
parameters = 4 * start["model"]["parameters"]
assert start["layout"]["nodes"] == nodes and len(start["layout"]["sum_blocks"]) == nodes, start["layout"]
sent = [(c - b - (b - a)) / 5 for a, b, c in zip(first, second, third)]
least = 2 * parameters * (nodes - 1)
sizes = start["layout"]["sum_blocks"]
# What ranks hold for messages is planned, but for figures of losses and norms.
for rank in json.load(open(name + "/summary.json", encoding="utf-8"))["ranks"]:
    counted, planned = (rank["memory"][of]["communication"] for of in ("peak", "predicted"))
    assert planned <= counted <= planned + 4096, (rank["rank"], counted, planned)
total, most = sum(sent) / least, max(sent) / (least / nodes)
print(f"  {parameters / 1e6:.1f} MB, MB a step out of the nodes: {', '.join(f'{x / 1e6:.2f}' for x in sent)}; "
      f"together {total:.3f} times the least")
assert total <= 1.05 and (len(set(sizes)) > 1 or most <= 1.05), (total, most)
PYTHON
  blocks=$(python3 -c "import json; print(*json.loads(open('$name-3/metrics.jsonl').readline())['layout']['sum_blocks'], sep=',')")
  train "$name-one" 3 "${nodes[0]}:$ranks" "$ranks" --sum-blocks "$blocks" "$@"
  "$program" checkpoint diff "$name-3/checkpoints/"*.h5 "$name-one/checkpoints/"*.h5 >diff.txt ||
    complain "$name has other bits on one node: $(head -n 5 diff.txt)"
}

of() { local out= i; for i in "${!nodes[@]}"; do [ "$i" -ge "$1" ] || out+=${out:+,}${nodes[i]}:$2; done; echo "$out"; }
compare dp8 "$(of 2 4)" 8 2 --dp 8
compare uneven "${nodes[0]}:4,${nodes[1]}:3" 7 2 --dp 7 --global-batch-size 14
compare dp12 "$(of 3 4)" 12 3 --dp 12 --global-batch-size 12
compare dp16 "$(of 4 4)" 16 4 --dp 16
compare dp8-tp2 "$(of 4 4)" 16 4 --dp 8 --tp 2
# Dealt out to the nodes in turn, ranks are numbered node by node all the same.
map=node compare dealt "$(of 4 4)" 16 4 --dp 8 --tp 2
echo "node_bytes: passed"
