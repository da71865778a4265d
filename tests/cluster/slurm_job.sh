#!/usr/bin/env bash
# Starts a real Slurm on this one machine, runs `srun -n 16 vit_hybrid --dp 4 --tp 2 --pp 2` in it, and then a job that
# must be refused. All daemons and files belong to this script, live under one folder, and go at its end.
#
#   slurm_job.sh PROGRAM WORK_DIR
#
# Exit code 77, with the reason, where Slurm is not installed or cannot run. Needs no root: the daemons run as the caller.
set -euo pipefail

program=$(readlink -f "$1")
work=$2
[ "$(basename "$program")" = vit_hybrid ] || { echo "slurm_job: $program is not called vit_hybrid" >&2; exit 2; }

skip() { echo "[skipped] $*"; exit 77; }
for command in slurmctld slurmd munged srun sinfo; do
  command -v "$command" >/dev/null || PATH=$PATH:/usr/sbin:/sbin
  command -v "$command" >/dev/null || skip "$command is not installed (launch/install_dependencies --full)"
done

rm -rf "$work"
mkdir -p "$work"/{state,spool,log,munge,job}
work=$(readlink -f "$work")
# A socket's path has room for 107 characters, and build folders are deep.
sockets=$(mktemp -d /tmp/vit_slurm.XXXXXX)
pids=()

no_jobs() { [ -z "$(squeue --noheader 2>&1)" ]; }

# When no step is left that needs munge to end. What then does not end is killed: a
# daemon that lived on would keep this script's output open.
stop() {
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
trap stop EXIT

complain() {
  echo "slurm_job: $*" >&2
  tail -n 20 "$work"/log/*.log >&2 || true
  exit 1
}

# Waits at most so many seconds for a command to succeed.
wait_for() {
  local seconds=$1
  shift
  for _ in $(seq $((seconds * 10))); do
    "$@" >/dev/null 2>&1 && return 0
    sleep 0.1
  done
  return 1
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

# One node with as many CPUs as the job has ranks, made up: the ranks share the real cores.
write_configuration() {
  local host user controller_port node_port
  host=$(hostname -s)
  user=$(id -un)
  controller_port=$(free_port)
  node_port=$(free_port)
  cat >"$work/slurm.conf" <<TEXT
ClusterName=vit_hybrid_test
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$controller_port
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
SlurmdSpoolDir=$work/spool
TmpFS=/tmp
SlurmctldPidFile=$sockets/slurmctld.pid
SlurmdPidFile=$sockets/slurmd.pid
SlurmctldLogFile=$work/log/slurmctld.log
SlurmdLogFile=$work/log/slurmd.log
NodeName=$host NodeAddr=127.0.0.1 Port=$node_port CPUs=16 RealMemory=1000 State=UNKNOWN
PartitionName=test Nodes=$host Default=YES MaxTime=INFINITE State=UP
TEXT
}

node_is_idle() { [ "$(sinfo --noheader --format=%t)" = idle ]; }

start_slurm() {
  write_configuration
  export SLURM_CONF=$work/slurm.conf
  slurmctld -D -c >"$work/log/slurmctld.err" 2>&1 &
  pids+=($!)
  slurmd -D >"$work/log/slurmd.err" 2>&1 &
  pids+=($!)
  wait_for 30 node_is_idle || complain "Slurm's node did not come up"
}

job_that_must_pass() {
  srun --mpi=list 2>&1 | grep -q pmix || skip "this Slurm has no pmix plugin"
  echo "+ srun -n 16 vit_hybrid --dp 4 --tp 2 --pp 2"
  srun -n 16 vit_hybrid --dp 4 --tp 2 --pp 2 || complain "the job failed with exit code $?"
  local summary
  summary=$(find . -name summary.json)
  [ -n "$summary" ] || complain "the job left no summary.json"
  grep -q '"kind": *"step"' "$(dirname "$summary")/metrics.jsonl" || complain "the job logged no step"
}

# 2 x 2 x 2 is not 16: one message, from one rank, and the exit code of wrong usage. (srun and Open MPI add lines of their
# own; under mpirun, -q keeps the launcher's away.)
job_that_must_fail() {
  local code=0 output
  echo "+ srun -n 16 vit_hybrid --dp 2 --tp 2 --pp 2"
  output=$(srun -n 16 vit_hybrid --dp 2 --tp 2 --pp 2 2>&1) || code=$?
  echo "$output"
  [ "$code" = 64 ] || complain "the refused job ended with exit code $code instead of 64"
  local messages
  messages=$(grep -c '^vit_hybrid: ' <<<"$output" || true)
  [ "$messages" = 1 ] || complain "the refused job printed $messages messages instead of one"
}

start_munge
start_slurm
cd "$work/job"
export PATH
PATH=$(dirname "$program"):$PATH
begin=$SECONDS
job_that_must_pass
echo "trained in $((SECONDS - begin)) s"
begin=$SECONDS
job_that_must_fail
[ $((SECONDS - begin)) -le 30 ] || complain "the refused job took $((SECONDS - begin)) s to end"
echo "slurm_job: passed"
