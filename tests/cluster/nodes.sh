#!/usr/bin/env bash
# Two or more "nodes" for tests that source this file: network namespaces with host names of their own, joined by a bridge, each with an
# Open MPI daemon. Shared memory, TCP between nodes and the choice of leaders are those of two machines.
#
#   make_nodes N WORK_DIR  makes them, empties the folder, and cds there; skips the test where they cannot be made. Their names
#                          are then ${nodes[@]}; mpirun reaches them by settings in the environment (OMPI_MCA_...)

# shellcheck source=tests/cluster/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
# shellcheck source=launch/environment
. "$(dirname "${BASH_SOURCE[0]}")/../../launch/environment"

# Names that no other run on this machine has; an interface's name has room for 15 characters.
tag=vh$(($$ % 10000))
subnet=10.$((64 + $$ % 64)).$((RANDOM % 256))
nodes=()
work=

cleanup() {
  local node
  for node in "${nodes[@]}"; do
    ip netns del "$node" 2>/dev/null || true
    rm -rf "/etc/netns/$node"
  done
  ip link del "${tag}br" 2>/dev/null || true
}

connect_nodes() {
  local i other node
  ip link add "${tag}br" type bridge
  ip addr add "$subnet.254/24" dev "${tag}br"
  ip link set "${tag}br" up
  for i in "${!nodes[@]}"; do
    node=${nodes[i]}
    ip netns add "$node"
    ip link add "${tag}v$i" type veth peer name eth0 netns "$node"
    ip link set "${tag}v$i" master "${tag}br" up
    ip -n "$node" link set lo up
    ip -n "$node" addr add "$subnet.$((i + 1))/24" dev eth0
    ip -n "$node" link set eth0 up
    # `ip netns exec` puts this file in the place of /etc/hosts.
    mkdir -p "/etc/netns/$node"
    {
      printf '%s\n' "127.0.0.1 localhost" "$subnet.254 $(hostname)"
      for other in "${!nodes[@]}"; do echo "$subnet.$((other + 1)) ${nodes[other]}"; done
    } >"/etc/netns/$node/hosts"
  done
}

# What mpirun calls instead of ssh: FILE HOST COMMAND...
write_agent() {
  cat >"$1" <<'TEXT'
#!/usr/bin/env bash
node=$1
shift
exec ip netns exec "$node" unshare --uts sh -c "hostname $node; $*"
TEXT
  chmod +x "$1"
}

make_nodes() {
  local i
  for i in $(seq "$1"); do nodes+=("${tag}n$i"); done
  [ "$(id -u)" = 0 ] || skip "network namespaces need root"
  for command in ip unshare mpirun; do
    command -v "$command" >/dev/null || skip "$command is not installed (launch/install_dependencies --full)"
  done
  mpirun --version | grep -qi "open.*mpi" || skip "mpirun is not Open MPI's"
  rm -rf "$2"
  mkdir -p "$2"
  cd "$2" || exit
  work=$(pwd)
  trap cleanup EXIT
  if ! connect_nodes 2>"$work/nodes.log"; then
    skip "network namespaces cannot be made here: $(tail -n 1 "$work/nodes.log")"
  fi
  write_agent "$work/agent"
  export OMPI_MCA_plm_rsh_agent=$work/agent OMPI_MCA_plm_rsh_no_tree_spawn=1 OMPI_MCA_btl=self,vader,tcp
  export OMPI_MCA_oob_tcp_if_include=$subnet.0/24 OMPI_MCA_btl_tcp_if_include=$subnet.0/24
}
