#!/usr/bin/env bash
# Starts a real Slurm on this one machine, runs `srun -n 16 vit_hybrid --dp 4 --tp 2 --pp 2` in it, and then a job that
# must be refused.
#
#   slurm_job.sh PROGRAM WORK_DIR
#
# Exit code 77, with the reason, where Slurm is not installed or cannot run.
set -euo pipefail

program=$(readlink -f "$1")
[ "$(basename "$program")" = vit_hybrid ] || { echo "slurm_job: $program is not called vit_hybrid" >&2; exit 2; }

# shellcheck source=tests/cluster/slurm.sh
. "$(dirname "${BASH_SOURCE[0]}")/slurm.sh"

job_that_must_pass() {
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

slurm_folder "$2"
start_slurm 1 16
export PATH
PATH=$(dirname "$program"):$PATH
begin=$SECONDS
job_that_must_pass
echo "trained in $((SECONDS - begin)) s"
begin=$SECONDS
job_that_must_fail
[ $((SECONDS - begin)) -le 30 ] || complain "the refused job took $((SECONDS - begin)) s to end"
echo "slurm_job: passed"
