#!/usr/bin/env bash
# check_failure.sh CODE SECONDS PATTERN COMMAND...: COMMAND must end with CODE, within SECONDS, and print exactly one
# message of ours, on standard error, in which PATTERN (an extended regular expression, lines joined by ' / ') is found.
# CODE may be 74/9 for an end without MPI_Abort, which is none before MPI_Init and after MPI_Finalize has begun: MPICH's
# launcher then kills the others and returns the code of one of those.
codes=$1 limit=$2 pattern=$3
shift 3
code=${codes%/*}
output=$(mktemp)
errors=$(mktemp)
trap 'rm -f "$output" "$errors"' EXIT
start=$SECONDS
timeout 60 "$@" >"$output" 2>"$errors"
got=$?
cat "$output"
if [ "$got" = "${codes#*/}" ] && grep -q 'BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES' "$output"; then
  code=$got
fi
took=$((SECONDS - start))
# MPICH adds a line of its own after an abort.
text=$(grep -v -E '^(Abort\([0-9]+\).*)?application called MPI_Abort' "$errors" | paste -sd '/' | sed 's#/# / #g')
fail() {
  echo "$1"
  echo "exit code $got after $took s; standard error:"
  cat "$errors"
  exit 1
}
[ "$got" -eq "$code" ] || fail "expected exit code $code"
[ "$took" -le "$limit" ] || fail "expected at most $limit s"
[ "$(grep -c '^vit_hybrid: ' "$errors")" -eq 1 ] || fail "expected exactly one message"
echo "$text" | grep -q -E -- "$pattern" || fail "expected a message like: $pattern"
