# What tests have in common that watch runs in the background; to be sourced, by a test that has a function `fail`.
#
#   has_steps RUN N               the run in this folder has done N steps
#   wait_for_steps RUN N PROCESS  waits until it has; fails where the process ends before, or a minute is over

has_steps() { [ "$(grep -sc '"kind":"step"' "$1/metrics.jsonl")" -ge "$2" ] 2>/dev/null; }

wait_for_steps() {
  for _ in $(seq 1200); do
    has_steps "$1" "$2" && return
    kill -0 "$3" 2>/dev/null || fail "the run in $1 ends by itself before $2 steps"
    sleep 0.05
  done
  fail "the run in $1 does not do $2 steps in a minute"
}
