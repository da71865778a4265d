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

# `got`: the code of the command, or 124 where it has not ended some seconds after the limit.
run() {
  start=$SECONDS
  "$@" >"$output" 2>"$errors" &
  local launcher=$!
  ranks_are_gone=no
  while kill -0 $launcher 2>/dev/null && [ $((SECONDS - start)) -lt $((limit + 10)) ]; do
    sleep 0.1
  done
  if ! kill -0 $launcher 2>/dev/null; then
    wait $launcher
    got=$?
    return
  fi
  got=124
  # Its ranks are its children; a dead one is a zombie, since it waits for none.
  # shellcheck disable=SC2009 # pgrep finds none of the dead
  ps -o stat= --ppid $launcher | grep -qv '^Z' || ranks_are_gone=yes
  kill $launcher
  sleep 3
  kill -KILL $launcher 2>/dev/null
  wait $launcher
}

# Ranks that end within MPI_Finalize leave a fence. Now and then PMIx 4.2.2, of Debian 12's mpirun, then crashes in
# PMIx_server_finalize, or waits there for ever, when all ranks have ended as they should.
launcher_failed() {
  [ "$codes" != "${codes%/*}" ] && { grep -q 'PMIx_server_finalize' "$errors" || [ $ranks_are_gone = yes ]; }
}

for attempt in 1 2 3; do
  run "$@"
  launcher_failed || break
  echo "attempt $attempt: the launcher ended with $got, after its ranks"
done
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
