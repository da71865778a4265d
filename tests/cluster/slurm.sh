#!/usr/bin/env bash
# A real Slurm on this one machine, for tests that source this file. All daemons and files belong to the test, live under one
# folder, and go at its end. Needs no root: the daemons run as the caller.
#
#   slurm_folder WORK_DIR      empties it, and cds there; skips the test where Slurm is not installed
#   start_slurm NODES CPUS     a controller, and so many nodes n1, n2, ... of so many CPUs, made up: they share the real cores
#
# And complain, which ends the test with the end of the daemons' logs.
# shellcheck source=tests/cluster/common.sh
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
work=
sockets=
pids=()

complain() {
  echo "$test_name: $*" >&2
  tail -n 20 "$work"/log/*.log >&2 || true
  exit 1
}

slurm_folder() {
  for command in slurmctld slurmd munged srun sinfo; do
    command -v "$command" >/dev/null || PATH=$PATH:/usr/sbin:/sbin
    command -v "$command" >/dev/null || skip "$command is not installed (launch/install_dependencies --full)"
  done
  rm -rf "$1"
  mkdir -p "$1"/{state,log,munge,job}
  work=$(readlink -f "$1")
  # A socket's path has room for 107 characters, and build folders are deep.
  sockets=$(mktemp -d /tmp/vit_slurm.XXXXXX)
  trap stop_slurm EXIT
  cd "$work/job" || exit
}

no_jobs() { [ -z "$(squeue --noheader 2>&1)" ]; }

# When no step is left that needs munge to end. What then does not end is killed: a
# daemon that lived on would keep this script's output open.
stop_slurm() {
  local pid
  [ ${#pids[@]} -lt 3 ] || wait_for 30 no_jobs || true
  for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
  for pid in "${pids[@]}"; do
    for _ in $(seq 100); do
      kill -0 "$pid" 2>/dev/null || break
      sleep 0.1
    done
    kill -KILL "$pid" 2>/dev/null || true
  done
  rm -rf "$sockets"
}

free_port() {
  local port
  for _ in $(seq 100); do
    port=$((20000 + RANDOM % 20000))
    (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null || { echo "$port"; return; }
  done
}

start_munge() {
  chmod 700 "$work/munge"
  dd if=/dev/urandom of="$work/munge/key" bs=1024 count=1 status=none
  chmod 400 "$work/munge/key"
  munged --foreground --force --num-threads=2 --socket="$sockets/munge" --key-file="$work/munge/key" \
    --pid-file="$sockets/munge.pid" --log-file="$work/log/munge.log" --seed-file="$work/munge/seed" \
    2>"$work/log/munged.log" &
  pids+=($!)
  wait_for 10 munge --socket="$sockets/munge" --no-input || complain "munged does not answer"
}

# write_configuration NODES CPUS
write_configuration() {
  local host user node
  host=$(hostname -s)
  user=$(id -un)
  cat >"$work/slurm.conf" <<TEXT
ClusterName=vit_hybrid_test
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$(free_port)
SlurmUser=$user
SlurmdUser=$user
AuthType=auth/munge
AuthInfo=socket=$sockets/munge
CredType=cred/munge
MpiDefault=pmix
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
ReturnToService=2
StateSaveLocation=$work/state
SlurmdSpoolDir=$sockets/%n.spool
TmpFS=$sockets/%n
SlurmctldPidFile=$sockets/slurmctld.pid
SlurmdPidFile=$sockets/%n.pid
SlurmctldLogFile=$work/log/slurmctld.log
SlurmdLogFile=$work/log/%n.log
PartitionName=test Nodes=ALL Default=YES MaxTime=INFINITE State=UP
TEXT
  for node in $(seq "$1"); do
    mkdir "$sockets/n$node" "$sockets/n$node.spool"
    echo "NodeName=n$node NodeHostname=$host NodeAddr=127.0.0.1 Port=$(free_port) CPUs=$2 RealMemory=1000 State=UNKNOWN" \
      >>"$work/slurm.conf"
  done
}

all_are_idle() { [ "$(sinfo --noheader --format=%t)" = idle ]; }

start_slurm() {
  local node
  start_munge
  write_configuration "$@"
  export SLURM_CONF=$work/slurm.conf
  slurmctld -D -c >"$work/log/slurmctld.err" 2>&1 &
  pids+=($!)
  for node in $(seq "$1"); do
    slurmd -D -N "n$node" >"$work/log/n$node.err" 2>&1 &
    pids+=($!)
  done
  wait_for 30 all_are_idle || complain "Slurm's nodes did not come up"
  srun --mpi=list 2>&1 | grep -q pmix || skip "this Slurm has no pmix plugin"
}
