#!/usr/bin/env bash
# Makes single calls of a save fail, or kills a rank there, and checks that `latest` is a complete checkpoint all the
# same: another run resumes from it, which verifies its checksums. Errors must be reported once, with their exit code.
#
#   failing_saves.sh some|all PROGRAM SHIM RANKS LAUNCHER...   (whose last word takes the number of ranks)
#
# SHIM is the library of tests/support/failing_calls.c. A run of 3 steps saves after steps 1, 2 and 3; faults hit the
# second save or later. `all` goes through every call of each kind on the first and on the last rank.
set -u
which=$1 program=$2 shim=$3 ranks=$4
shift 4
launcher=("$@")

LIMIT=${VIT_HYBRID_TEST_FAULT_SECONDS:-60}
faulty=$(realpath "$(dirname "${BASH_SOURCE[0]}")/faulty.sh")
check_runs=$(realpath "$(dirname "${BASH_SOURCE[0]}")/../support/check_runs.sh")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
failures=0
count=0
options=(--generated-samples 32 --generated-valid-samples 0 --depth 1 --embed-dim 32)

fail() {
  failures=$((failures + 1))
  echo "FAILED: $1"
  head -n 8 err | sed 's/^/    /'
}


# put_away FOLDER: only the records of a run are kept, which are checked in the end
put_away() {
  rm -rf "$1/checkpoints"
  [ ! -e "$1" ] || mv "$1" "$(mktemp -d "$work/past.XXXXXX")"
}

# run_with FAULT: the exit code is in `code`
run_with() {
  put_away run
  timeout -k 5 "$LIMIT" "${launcher[@]}" "$ranks" "$faulty" "$1" "$shim" "$program" "${options[@]}" --steps 3 \
    --checkpoint-every 1 --keep-checkpoints 1 --run-dir run >out 2>err
  code=$?
}

# Where the first save was over, `latest` can be resumed from; before that there is none, and nothing says there were.
check_latest() {
  if [ ! -e run/checkpoints/latest ]; then
    [ "$2" = may_be_none ] || fail "$1: there is no latest"
    return
  fi
  timeout -k 5 "$LIMIT" "$program" "${options[@]}" --steps 1 --resume run --keep-checkpoints none \
    --run-dir again >out2 2>err || fail "$1: latest is no good"
  put_away again
}

# faulted RANK CALL NUMBER ERROR: an error's code, or "killed"; returns 1 if there is no such call any more
faulted() {
  local fault="$1 $2 $3 $4"
  run_with "$fault"
  if [ "$code" -eq 0 ] && [ "$2" != remove ]; then
    return 1
  fi
  count=$((count + 1))
  if [ "$code" -eq 124 ] || [ "$code" -eq 137 ] && [ "$4" -gt 0 ]; then
    fail "$fault: hangs"
  elif [ "$4" -gt 0 ] && [ "$2" != remove ]; then
    case $code in 73 | 74) ;; *) fail "$fault: exit code $code, not 73 or 74" ;; esac
    [ "$(grep -c '^vit_hybrid: ' err)" -eq 1 ] || fail "$fault: not one message"
  fi
  check_latest "$fault" may_be_none
  return 0
}

last=$((ranks - 1))
run_with "none"
[ "$code" -eq 0 ] || fail "the run without a fault ends with code $code"
check_latest "no fault" must_be

if [ "$which" = some ]; then
  # A call that does not come is a failure here.
  must() { faulted "$@" || fail "$*: there is no such call"; }
  # By number of a kind on rank 0: before the first step a file is created and removed. A save creates the file, HDF5
  # creates it again, then comes latest; it syncs the values, the whole file, its folder, latest, its folder; it renames
  # both.
  # Kills are killed_saves.py's; here those around the last rename.
  must 0 sync 7 0
  must 0 rename 4 0
  must 0 rename 4 -1
  must $last write 12 28
  must 0 create 5 13
  must 0 sync 6 5
  must 0 sync 8 5
  must 0 rename 3 28
  must 0 remove 2 13
  export VIT_HYBRID_CHECKPOINT_ASYNC=true
  must $last write 12 0
  must $last sync 2 5
else
  for rank in 0 $last; do
    for call in create write sync rename remove; do
      for error in 0 -1 5 13 28; do
        number=1
        while [ $number -lt 400 ] && faulted $rank $call $number $error && [ "$code" -ne 0 ]; do
          [ $call = write ] && [ $number -ge 12 ] && number=$((number + 6))  # writes are all alike
          number=$((number + 1))
        done
      done
    done
  done
fi
"$check_runs" "$work" || failures=$((failures + 1))
echo "$count faults on $ranks ranks, $failures failures"
[ "$failures" -eq 0 ]
