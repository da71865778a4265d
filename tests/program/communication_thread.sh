#!/usr/bin/env bash
# A thread that moves messages while kernels compute: the same bits in every layout, a job that ends when one of its ranks
# is killed or stopped, and one line where MPI was not started for it.
#
#   communication_thread.sh PROGRAM WORK_DIR LAUNCHER...   (whose last word takes the number of ranks)
set -euo pipefail

program=$1 work=$2
shift 2
launcher=("$@")
fail() { echo "communication_thread: $*" >&2; exit 1; }
# shellcheck source=tests/support/watched_run.sh
. "$(dirname "${BASH_SOURCE[0]}")/../support/watched_run.sh"

rm -rf "$work"
mkdir -p "$work"
cd "$work"
words=(--task classify --data synthetic --image-size 32 --patch-size 8 --num-classes 10 --depth 4 --embed-dim 96 --num-heads 4
  --dropout 0.1 --global-batch-size 8 --micro-batch-size 2 --generated-samples 64 --generated-valid-samples 8 --threads 1
  --deterministic --bucket-mb 0.1)  # without measuring, which may choose another kernel for the run that is compared

# Sums of halves by several buckets, gathers beside forward, activations over tp, messages between stages.
written=--communication-thread
for layout in "--dp 4" "--dp 2 --tp 2 --tp-overlap" "--dp 2 --pp 2"; do
  mkdir "past${layout// /}"
  for thread in with without; do
    option=()
    [ $thread = without ] || option=("$written")
    # shellcheck disable=SC2086
    "${launcher[@]}" 4 "$program" "${words[@]}" $layout --steps 6 --run-dir $thread ${option[@]+"${option[@]}"} >$thread.txt 2>&1 ||
      fail "$layout $thread a thread ends with code $?: $(tail -3 $thread.txt)"
  done
  "$program" checkpoint diff with/checkpoints/*6.h5 without/checkpoints/*6.h5 >diff.txt || fail "$layout: other bits: $(tail -3 diff.txt)"
  mv with without "past${layout// /}"
  written=--communication-thread=true
done

# Not on the command line: MPI was started before this was read.
code=0
VIT_HYBRID_COMMUNICATION_THREAD=true "${launcher[@]}" 4 "$program" "${words[@]}" --dp 4 --steps 1 --run-dir late >late.txt 2>&1 || code=$?
[ "$code" = 64 ] || fail "code $code where only the environment asks for it: $(tail -3 late.txt)"
grep -q "^vit_hybrid: --communication-thread is not on the command line itself .*; give it there" late.txt || fail "no line says why: $(cat late.txt)"

# A rank is killed, or stopped until the time limit: the job ends, and tells who.
for signal in KILL STOP; do
  "${launcher[@]}" 4 "$program" "${words[@]}" --dp 4 --steps 100000 --timeout 5 --run-dir lost-$signal --communication-thread >lost.txt 2>&1 &
  job=$!
  wait_for_steps lost-$signal 3 $job
  victim=$(pgrep -P "$job" -f -- "--run-dir lost-$signal" | tail -1)
  [ -n "$victim" ] || fail "no rank is found to send SIG$signal to"
  kill -$signal "$victim"
  for _ in $(seq 600); do
    kill -0 $job 2>/dev/null || break
    sleep 0.1
  done
  if kill -0 $job 2>/dev/null; then
    kill -KILL "$victim" $job 2>/dev/null || true
    fail "60 s after SIG$signal to a rank the job still runs"
  fi
  code=0
  wait $job || code=$?
  [ $code != 0 ] || fail "the job ends with code 0 after SIG$signal to a rank"
  [ $signal = KILL ] || grep -q "rank [0-3]" lost.txt || fail "nobody is named: $(tail -3 lost.txt)"
  kill -CONT "$victim" 2>/dev/null || true
done
