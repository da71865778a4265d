#!/usr/bin/env bash
# What the tests on a cluster have in common; slurm.sh and nodes.sh source it.
#
#   skip REASON                 ends the test as skipped
#   wait_for SECONDS COMMAND    waits at most so long for the command to succeed
#
# Of tests of a study, whose call N prints to N.txt and has the process $study, and which end by `complain`:
#
#   needs_matplotlib
#   end_study N CODE            waits for the call, which must end with this code
#   says N PATTERN, says_not N PATTERN
#   trains POINT                a run of this point has done three steps
# shellcheck source=tests/support/watched_run.sh
. "$(dirname "${BASH_SOURCE[0]}")/../support/watched_run.sh"
test_name=$(basename "$0" .sh)

skip() { echo "[skipped] $*"; exit 77; }

wait_for() {
  local seconds=$1
  shift
  for _ in $(seq $((seconds * 10))); do
    "$@" >/dev/null 2>&1 && return 0
    sleep 0.1
  done
  return 1
}

needs_matplotlib() {
  python3 -c "import matplotlib" 2>/dev/null || /usr/bin/python3 -c "import matplotlib" 2>/dev/null ||
    skip "no Python with matplotlib"
}

end_study() {
  local code=0
  wait "$study" || code=$?
  [ "$code" = "$2" ] || complain "call $1 ended with exit code $code, not $2: $(cat "$1.txt")"
}

says() { grep -qE -- "$2" "$1.txt" || complain "call $1 does not say '$2': $(cat "$1.txt")"; }
says_not() { ! grep -qE -- "$2" "$1.txt" || complain "call $1 says '$2': $(cat "$1.txt")"; }
trains() { has_steps "study/points/$1/run" 3; }
