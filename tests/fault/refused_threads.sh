#!/usr/bin/env bash
# Lets the system start no more threads from some point of a run on, and looks at exit code, message and time: neither
# the threads of the data loader nor those that see to the end of the job are there then.
#
#   refused_threads.sh PROGRAM SHIM
#
# SHIM is the library of tests/support/refused_threads.c.
set -u
program=$(realpath "$1") shim=$(realpath "$2")
if ldd "$program" | grep -qE 'lib[at]san'; then
  echo "[skipped] the program has a sanitizer, which starts threads its own way"
  exit 77
fi

. "$(dirname "${BASH_SOURCE[0]}")/expect.sh"

# refused MARK OPTIONS...: no thread is started once the file MARK is there
refused() {
  local mark=$1
  shift
  expect 64 "a thread could not be started: Resource temporarily unavailable" env OMP_NUM_THREADS=1 \
    VIT_HYBRID_TEST_NO_THREADS_AFTER="$mark" LD_PRELOAD="$shim${LD_PRELOAD:+:$LD_PRELOAD}" \
    "$program" --steps 2 --run-dir run --generated-samples 32 --depth 1 --embed-dim 32 "$@"
  grep -q 'give fewer --threads or --io-threads, or raise the limits on threads (ulimit -u)' "$work/err" ||
    fail "no hint"
}

refused run
mv run first
refused run --threads 1 --io-threads 3

echo "$count times no more threads, $failures failures"
[ "$failures" -eq 0 ]
