#!/usr/bin/env bash
# What the program says at its start of ranks that stand on each other's feet: one line with the option that mends it, and
# nothing where all is well.
#
#   placement.sh PROGRAM WORK_DIR LAUNCHER...   (whose last word takes the number of ranks)
#
# Exit code 77, with the reason, where there are not two cores to be free and taken.
set -euo pipefail

program=$1 work=$2
shift 2
fail() { echo "placement: $*" >&2; exit 1; }
skip() { echo "[skipped] $*"; exit 77; }

command -v taskset >/dev/null || skip "taskset is not installed"
cores=$(cat /sys/devices/system/cpu/cpu*/topology/thread_siblings_list 2>/dev/null | sort -u | wc -l)
[ "$cores" -ge 2 ] && [ "$(env -u OMP_NUM_THREADS nproc)" -ge 2 ] || skip "one core only"

rm -rf "$work"
mkdir -p "$work"
cd "$work"
first=$(taskset -cp $$ | sed 's/.*: *\([0-9]*\).*/\1/')
# train NAME WORDS...: a step of a small training; what it printed is in NAME.txt.
train() {
  local name=$1
  shift
  "$@" --steps 1 --generated-samples 8 --generated-valid-samples 0 --device cpu --run-dir "$name" >"$name.txt" 2>&1 ||
    fail "$name ended with exit code $?: $(tail -n 3 "$name.txt")"
}
lines() { grep -c 'placement:' "$1.txt" || true; }

train alone "$program" --threads 1
[ "$(lines alone)" = 0 ] || fail "one rank of one thread is told off: $(grep placement: alone.txt)"

train crowd taskset -c "$first" "$@" 2 "$program" --dp 2 --threads 1
expected='ranks on the same cores \(ranks 0-1\): 2 threads on 1 core of .*, while [0-9]+ of its [0-9]+ are free; bind'
grep -qE "warning: placement: $expected" crowd.txt || fail "two ranks on one core are not told: $(cat crowd.txt)"
[ "$(grep -c 'mpirun --map-by slot:PE=1 --bind-to core' crowd.txt)" = 1 ] || fail "not one line with the option"
[ "$(lines crowd)" = 1 ] || fail "more than one line: $(grep placement: crowd.txt)"

train threads taskset -c "$first" "$program" --threads 2
expected='warning: placement: more threads than cores in a rank \(rank 0\): 2 threads on 1 core each; give --threads 1, or'
grep -qE "$expected" threads.txt || fail "two threads on one core are not told: $(cat threads.txt)"
# Hardware threads of a core are one core: hwloc is told that there is one.
HWLOC_SYNTHETIC="core:1 pu:1024" train hyperthreads "$program" --threads 2
expected='warning: placement: more threads than cores in a rank \(rank 0\): 2 threads on 1 core each; give --threads 1$'
grep -qE "$expected" hyperthreads.txt || fail "two hardware threads of a core are not told: $(cat hyperthreads.txt)"
echo "placement: passed"
