# For sourcing: a scratch folder as the working folder, and expect(), which runs a command with bad input and looks at its
# exit code, message and time. Counts in $count and $failures.
LIMIT=${VIT_HYBRID_TEST_FAULT_SECONDS:-60}
check_runs=$(realpath "$(dirname "${BASH_SOURCE[0]}")/../support/check_runs.sh")
work=$(mktemp -d)

# What runs have left is as docs/schemas has it, also of those that failed or were killed.
end() {
  local code=$?
  "$check_runs" "$work" || code=1
  rm -rf "$work"
  exit $code
}
trap end EXIT
cd "$work" || exit 1
failures=0
count=0

fail() {
  failures=$((failures + 1))
  echo "FAILED: $1"
  echo "  exit code $code, standard error:"
  head -n 8 "$work/err" | sed 's/^/    /'
}

# expect CODE TEXT COMMAND...: what any command must do
expect() {
  local want=$1 text=$2
  shift 2
  count=$((count + 1))
  timeout -k 5 "$LIMIT" "$@" >"$work/out" 2>"$work/err"
  code=$?
  # MPICH's launcher adds a line of its own after MPI_Abort, and Open MPI's nothing with -q.
  local messages others
  messages=$(grep -c '^vit_hybrid: ' "$work/err")
  others=$(grep -vc -e '^vit_hybrid: ' -e '^  ' -e '^\[rank ' -e '^application called MPI_Abort' \
    -e '^Abort([0-9]*) on node [0-9]* (rank [0-9]* in comm 0): application called MPI_Abort' "$work/err")
  if [ "$code" -ne "$want" ]; then
    fail "exit code is not $want: $*"
  elif [ "$messages" -ne 1 ]; then
    fail "not one message but $messages: $*"
  elif [ "$others" -ne 0 ]; then
    fail "more than the message on standard error: $*"
  elif ! grep -qF -e "$text" "$work/err"; then
    fail "the message lacks '$text': $*"
  fi
}
