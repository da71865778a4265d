#!/usr/bin/env bash
# Three "nodes" (nodes.sh) of two ranks train, and then: a rank is killed, a leader is stopped, the link of two nodes is cut, a
# node is cut off, a node is gone. The job ends within its limit and some seconds; one line (of the program, or of mpirun where
# that is the first to see it) names the rank or the nodes; on the nodes that live no process and no shared memory is left.
# Where a node is cut off for three seconds, the job goes on, to the bits of an undisturbed one.
#
#   broken_nodes.sh PROGRAM WORK_DIR
#
# Exit code 77, with the reason, where the privileges or commands for it are missing.
set -eEuo pipefail
trap 'echo "broken_nodes: line $LINENO failed" >&2' ERR

program=$(readlink -f "$1")
# shellcheck source=tests/cluster/nodes.sh
. "$(dirname "${BASH_SOURCE[0]}")/nodes.sh"
make_nodes 3 "$2"
export OMPI_MCA_mpi_yield_when_idle=1 OMP_NUM_THREADS=1
# mpirun sees a daemon that it cannot reach after five seconds, not after minutes.
export OMPI_MCA_oob_tcp_keepalive_time=2 OMPI_MCA_oob_tcp_keepalive_intvl=1 OMPI_MCA_oob_tcp_keepalive_probes=3
limit=8
job=
complain() {
  echo "$test_name: $*" >&2
  [ -z "$job" ] || kill "$job" 2>/dev/null || true
  exit 1
}

# train NAME STEPS OPTION...: in the background; the job is $job.
train() {
  local name=$1
  # dp alone crosses the nodes, so that every rank leads in its turn.
  mpirun --host "${nodes[0]}:2,${nodes[1]}:2,${nodes[2]}:2" --oversubscribe --bind-to none -n 6 -x OMP_NUM_THREADS \
    -x OMPI_MCA_mpi_yield_when_idle "$program" --dp 6 --global-batch-size 6 --generated-samples 192 \
    --generated-valid-samples 0 --threads 1 --timeout $limit --run-dir "$name" --steps "${@:2}" >"$name.txt" 2>&1 </dev/null &
  job=$!
}

has_ended() { ! kill -0 "$job"; }
process_of() { # RANK
  local pid
  for pid in $(ip netns pids "${nodes[$(($1 / 2))]}"); do
    if tr '\0' '\n' <"/proc/$pid/environ" 2>/dev/null | grep -qx "OMPI_COMM_WORLD_RANK=$1"; then echo "$pid"; fi
  done
}
end_node() {
  local pid
  ip link set "${tag}v$1" down
  # Its daemon first, so that nobody there can say goodbye.
  for pid in $(ip netns pids "${nodes[$1]}"); do kill -9 "$pid" 2>/dev/null || true; done
}

# breaks NAME PATTERN LIVING COMMAND...: breaks a job that trains; its output has one line with the pattern; LIVING are the nodes on
# which nothing may be left.
breaks() {
  local name=$1 pattern=$2 living=$3 began code=0 lines node left
  shift 3
  train "$name" 100000
  wait_for 60 has_steps "$name" 20 || complain "$name: it does not train: $(tail -n 3 "$name.txt")"
  began=$SECONDS
  "$@"
  wait_for $((limit + 12)) has_ended || complain "$name: it has not ended after $((SECONDS - began)) s: $(tail -n 3 "$name.txt")"
  wait "$job" || code=$?
  job=
  [ $code != 0 ] || complain "$name: it ended with code 0"
  lines=$(grep -cE "$pattern" "$name.txt") || complain "$name: nothing is said of it: $(cat "$name.txt")"
  [ "$lines" = 1 ] || complain "$name: said $lines times: $(grep -E "$pattern" "$name.txt")"
  [ "$(grep -c '^vit_hybrid: rank' "$name.txt")" -le 1 ] || complain "$name: more than one line: $(cat "$name.txt")"
  for node in $living; do
    wait_for 5 has_nobody "$node" || complain "$name: still on $node: $(ip netns pids "$node" | tr '\n' ' ')"
    left=$(find /dev/shm -name "*$node*")
    [ -z "$left" ] || complain "$name: left on $node: $left"
  done
  echo "$name: code $code after $((SECONDS - began)) s: $(grep -E "$pattern" "$name.txt" | cut -c1-400)"
}
has_nobody() { [ -z "$(ip netns pids "$1")" ]; }

kill_rank() { kill -9 "$(process_of 2)"; }
stop_rank() { kill -STOP "$(process_of 2)"; }
cut_off() { ip link set "${tag}v1" down; }
cut_pair() { ip -n "${nodes[1]}" route add blackhole "$subnet.3/32"; }
mend_pair() { ip -n "${nodes[1]}" route del blackhole "$subnet.3/32"; }

breaks killed "process rank 2 with PID .* on node ${nodes[1]} exited on signal 9" "${nodes[*]}" kill_rank
breaks stopped "^vit_hybrid: rank 2 on ${nodes[1]} .*stopped by a signal" "${nodes[*]}" stop_rank
breaks pair "^vit_hybrid: rank .* has waited .* messages between ${nodes[1]} and ${nodes[2]} do not get through" \
  "${nodes[*]}" cut_pair
mend_pair
breaks cut "Remote daemon: .* on node ${nodes[1]}|^vit_hybrid: .*${nodes[1]} .*did not answer" "${nodes[0]} ${nodes[2]}" cut_off
ip link set "${tag}v1" up
wait_for 20 has_nobody "${nodes[1]}" || complain "cut: still on ${nodes[1]}: $(ip netns pids "${nodes[1]}" | tr '\n' ' ')"

# A link that comes back: nothing is lost.
export OMPI_MCA_oob_tcp_keepalive_time=60
for name in undisturbed back; do
  train $name 60 --checkpoint-every 60
  if [ $name = back ]; then
    wait_for 60 has_steps back 20 || complain "back: it does not train: $(tail -n 3 back.txt)"
    cut_off
    sleep 3
    ip link set "${tag}v1" up
  fi
  wait_for 120 has_ended || complain "$name: it does not end: $(tail -n 3 $name.txt)"
  wait "$job" || complain "$name: exit code $?: $(tail -n 3 $name.txt)"
  job=
done
"$program" checkpoint diff undisturbed/checkpoints/*60.h5 back/checkpoints/*60.h5 >diff.txt || complain "back: other bits"
! grep -q "has waited\|has not moved" back.txt || complain "back: $(grep 'has waited\|has not moved' back.txt)"

export OMPI_MCA_oob_tcp_keepalive_time=2
breaks gone "Remote daemon: .* on node ${nodes[1]}|on node ${nodes[1]} exited|^vit_hybrid: .*${nodes[1]} " \
  "${nodes[0]} ${nodes[2]}" end_node 1
echo "$test_name: passed"
