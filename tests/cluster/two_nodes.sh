#!/usr/bin/env bash
# Runs mpirun over two "nodes": network namespaces with host names of their own, joined by a bridge, each with an Open MPI
# daemon. Shared memory, TCP between nodes and the choice of leaders are those of two machines.
#
#   two_nodes.sh PROGRAM WORK_DIR
#
# Exit code 77, with the reason, where the privileges or commands for it are missing.
set -euo pipefail

program=$(readlink -f "$1")
work=$2
skip() { echo "[skipped] $*"; exit 77; }
[ "$(id -u)" = 0 ] || skip "network namespaces need root"
for command in ip unshare mpirun; do
  command -v "$command" >/dev/null || skip "$command is not installed (launch/install_dependencies --full)"
done
mpirun --version | grep -qi "open.*mpi" || skip "mpirun is not Open MPI's"

rm -rf "$work"
mkdir -p "$work"
work=$(readlink -f "$work")
# Names that no other run on this machine has; an interface's name has room for 15 characters.
tag=vh$(($$ % 10000))
subnet=10.$((64 + $$ % 64)).$((RANDOM % 256))
count=0
nodes=("${tag}a" "${tag}b")

cleanup() {
  local node
  for node in "${nodes[@]}"; do
    ip netns del "$node" 2>/dev/null || true
    rm -rf "/etc/netns/$node"
  done
  ip link del "${tag}br" 2>/dev/null || true
}
trap cleanup EXIT

make_nodes() {
  local i node
  ip link add "${tag}br" type bridge
  ip addr add "$subnet.254/24" dev "${tag}br"
  ip link set "${tag}br" up
  for i in 1 2; do
    node=${nodes[i - 1]}
    ip netns add "$node"
    ip link add "${tag}v$i" type veth peer name eth0 netns "$node"
    ip link set "${tag}v$i" master "${tag}br" up
    ip -n "$node" link set lo up
    ip -n "$node" addr add "$subnet.$i/24" dev eth0
    ip -n "$node" link set eth0 up
    # `ip netns exec` puts this file in the place of /etc/hosts.
    mkdir -p "/etc/netns/$node"
    printf '%s\n' "127.0.0.1 localhost" "$subnet.1 ${nodes[0]}" "$subnet.2 ${nodes[1]}" "$subnet.254 $(hostname)" \
      >"/etc/netns/$node/hosts"
  done
}

# What mpirun calls instead of ssh: agent HOST COMMAND...
write_agent() {
  cat >"$work/agent" <<'TEXT'
#!/usr/bin/env bash
node=$1
shift
exec ip netns exec "$node" unshare --uts sh -c "hostname $node; $*"
TEXT
  chmod +x "$work/agent"
}

if ! make_nodes 2>"$work/nodes.log"; then
  skip "network namespaces cannot be made here: $(tail -n 1 "$work/nodes.log")"
fi
write_agent

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
# shellcheck source=launch/environment
. "$root/launch/environment"
vh_ranks 8

run_over_nodes() {
  mpirun -q --host "${nodes[0]}:4,${nodes[1]}:4" --oversubscribe --bind-to none -n 8 \
    --mca plm_rsh_agent "$work/agent" --mca plm_rsh_no_tree_spawn 1 \
    --mca oob_tcp_if_include "$subnet.0/24" --mca btl_tcp_if_include "$subnet.0/24" --mca btl self,vader,tcp \
    -x OMP_NUM_THREADS -x OMPI_MCA_mpi_yield_when_idle "$@"
}

cd "$work"
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
  --mca plm_rsh_agent "$work/agent" --mca plm_rsh_no_tree_spawn 1 \
  --mca oob_tcp_if_include "$subnet.0/24" -x VIT_HYBRID_TIMEOUT \
  bash -c '[ "$OMPI_COMM_WORLD_RANK" = 7 ] && exec sleep 50; exec "$0" --steps 2 --run-dir none' "$program" 2>&1)
code=$?
set -e
expected="none of those that are known has stopped; rank 7, on another node, cannot be asked before MPI_Init has ended; "
if [ $code != 74 ] || [[ $message != *"$expected"* ]]; then
  echo "two_nodes: exit code $code, not 74, or another message: $message" >&2
  exit 1
fi
echo "two_nodes: passed"
