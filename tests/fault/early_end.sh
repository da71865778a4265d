#!/usr/bin/env bash
# How a program ends that has nothing to save: at the first SIGTERM before step 1 at once, with code 75 and one message;
# and one that is alone and fails through MPI_Finalize, so that MPI's folder of the session does not stay.
#
#   early_end.sh PROGRAM RANKS [LAUNCHER...]   (whose last word takes the number of ranks)
set -u
program=$(realpath "$1") ranks=$2
shift 2
launcher=()
[ "$ranks" -gt 1 ] && launcher=("$@" "$ranks")
. "$(dirname "${BASH_SOURCE[0]}")/expect.sh"

# pid_of TAG: of a process of the program that has TAG in its environment
pid_of() {
  local folder
  for folder in /proc/[0-9]*; do
    [ "$(cat "$folder/comm" 2>/dev/null)" = vit_hybrid ] || continue
    tr '\0' '\n' 2>/dev/null <"$folder/environ" | grep -qx "EARLY_END=$1" || continue
    echo "${folder#/proc/}"
    return
  done
}

# stopped_at MARK OPTIONS...: SIGTERM to a rank once the file MARK is there; a step of this model would take many seconds
stopped_at() {
  local mark=$1 tag=$$-$count pid=""
  shift
  count=$((count + 1))
  EARLY_END=$tag timeout -k 5 "$LIMIT" ${launcher[0]+"${launcher[@]}"} "$program" --steps 1 --run-dir run --threads 1 \
    "$@" >"$work/out" 2>"$work/err" &
  local job=$!
  while [ ! -e "$mark" ] && kill -0 $job 2>/dev/null; do sleep 0.02; done
  pid=$(pid_of "$tag")
  local begin=$EPOCHREALTIME
  [ -z "$pid" ] || kill -TERM "$pid"
  wait $job
  code=$?
  local took=$(((${EPOCHREALTIME/./} - ${begin/./}) / 1000))
  local left
  for _ in $(seq 20); do
    left=$(pid_of "$tag")
    [ -n "$left" ] || break
    sleep 0.1
  done
  if [ -z "$pid" ]; then
    fail "there was no process to stop with $*"
  elif [ "$code" -ne 75 ]; then
    fail "exit code is not 75 at SIGTERM with $*"
  elif [ "$(grep -c '^vit_hybrid: stopped by SIGTERM' "$work/err")" -ne 1 ]; then
    fail "not one message at SIGTERM with $*"
  elif [ "$(grep -vc -e '^vit_hybrid: warning: ' -e 'application called MPI_Abort' "$work/err")" -ne 1 ]; then
    fail "more than that message at SIGTERM with $*"
  elif [ -n "$left" ]; then
    kill -KILL "$left"
    fail "process $left is left after SIGTERM with $*"
  elif [ "$took" -gt 2500 ]; then
    fail "it took $took ms to end at SIGTERM with $*"
  fi
}

# While weights are made, where nothing else looks at signals.
stopped_at run --generated-samples 256 --depth 16 --embed-dim 512 --global-batch-size 256

# Whatever fails alone after the start of MPI.
if [ "$ranks" -eq 1 ]; then
  for words in "data stats missing --out stats" "evaluate --checkpoint missing --data missing" "--train-data missing --stats missing"; do
    mkdir tmp
    # shellcheck disable=SC2086
    TMPDIR=$work/tmp expect 66 missing "$program" $words
    for _ in $(seq 20); do [ -z "$(ls tmp)" ] || sleep 0.1; done  # MPI's daemon removes it when the program has ended
    [ -z "$(ls tmp)" ] || fail "a folder is left after $words: $(ls tmp)"
    rm -rf tmp
  done
fi

echo "$count early ends, $failures failures"
[ "$failures" -eq 0 ]
