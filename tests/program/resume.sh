#!/usr/bin/env bash
# Stops runs by a signal, by a time limit and by killing them, resumes them in other layouts, and compares every step's
# loss with that of a run that was never stopped.
#
#   resume.sh PROGRAM WORK_DIR LAUNCHER...   (whose last word takes the number of ranks; 4 are used at most)
set -euo pipefail

program=$1 work=$2
shift 2
launcher=("$@")
fail() { echo "resume: $*" >&2; tail -n 5 "$work"/*.err >&2 || true; exit 1; }
# shellcheck source=tests/support/watched_run.sh
. "$(dirname "${BASH_SOURCE[0]}")/../support/watched_run.sh"

rm -rf "$work"
mkdir -p "$work"
cd "$work"
steps=24
# Options that single runs change; 40 samples by 8 are 5 steps an epoch.
export VIT_HYBRID_STEPS=$steps VIT_HYBRID_GLOBAL_BATCH_SIZE=8

# train RANKS NAME OPTIONS...
train() {
  local ranks=$1 name=$2
  shift 2
  "${launcher[@]}" "$ranks" "$program" --precision fp64 --generated-samples 40 --generated-valid-samples 3 \
    --micro-batch-size 2 --depth 2 --embed-dim 32 --dropout 0.1 --clip-norm 1 \
    "$@" >"$name.txt" 2>"$name.err"
}

# started RANKS NAME OPTIONS...: in the background, until it has done 4 steps; its process is in `job`
started() {
  train "$@" &
  job=$!
  wait_for_steps "$2" 4 $job
}

# ended CODE: the background run's exit code
ended() {
  local code=0
  wait $job || code=$?
  [ $code = "$1" ] || fail "the stopped run ended with code $code, not $1"
}

# The launcher is the background subshell's child: it hands signals on to the ranks.
launcher_of() { pgrep -P "$1" | head -n 1; }

losses() { sed -n 's/.*"kind":"step","step":\([0-9]*\),.*"loss":\([^,]*\),.*/\1 \2/p' "$1/metrics.jsonl"; }

# same_losses RUN: each of the steps is there, and the last record of each has the straight run's loss
same_losses() {
  losses straight >straight.losses
  losses "$1" | awk -v steps=$steps '
    NR == FNR { want[$1] = $2; next }
    { have[$1] = $2 }
    END {
      for (step = 1; step <= steps; ++step) {
        if (!(step in have)) { print "step " step " is missing"; exit 1 }
        difference = (have[step] - want[step]) / want[step]
        if (difference > 1e-9 || difference < -1e-9) {
          print "step " step ": loss " have[step] ", not " want[step]; exit 1
        }
      }
    }' straight.losses - || fail "the resumed run $1 is another run"
}

train 4 straight --run-dir straight --dp 2 --tp 2 || fail "the straight run failed"
[ "$(cat straight/checkpoints/latest)" = step-000000024.h5 ] || fail "no checkpoint at the end"

# A run that has ended, started again as a requeue does: nothing is written, and it says so.
state_of() { (cd "$1" && find . -type f -exec md5sum {} + | sort && find . | sort); }
state_of straight >straight.state
train 2 finished --run-dir straight --dp 2 --resume auto || fail "a finished run started again failed"
grep -q "nothing is left to do: the checkpoint is of step $steps and the run has $steps" finished.txt ||
  fail "no word on a finished run"
state_of straight | cmp -s - straight.state || fail "a finished run that is started again changes its folder"

# A signal; then another layout, twice.
started 4 stopped --run-dir stopped --dp 2 --tp 1 --pp 2
kill -USR1 "$(launcher_of $job)"
ended 75
grep -q 'warning: stopped by SIGUSR1 after step [0-9]*; go on with --resume ' stopped.err || fail "no word on the signal"
[ -s stopped/checkpoints/latest ] || fail "the stopped run saved nothing"
train 2 stopped_2 --run-dir stopped --resume latest --dp 1 --tp 2 --zero 0 || fail "the resumed run failed"
[ "$(grep -c '"kind":"resume"' stopped/metrics.jsonl)" -ge 1 ] || fail "no record of the resumption"
[ -s stopped/config-2.yaml ] || fail "the resumed run's configuration is not beside the first"
same_losses stopped

# Killed without warning: the last checkpoint of --checkpoint-every counts. Then --resume auto goes on from it.
started 2 killed --run-dir killed --dp 2 --checkpoint-every 3 --checkpoint-async
wait_for_steps killed 7 $job  # the save of step 6 has waited for that of step 3
pkill -KILL -P "$(launcher_of $job)" || true
wait $job && fail "the killed run ended well"
[ -s killed/checkpoints/latest ] || fail "the killed run left no checkpoint"
train 4 killed_2 --run-dir killed --resume auto --dp 1 --tp 2 --pp 2 --checkpoint-every 3 || fail "--resume auto failed"
same_losses killed
[ "$(ls killed/checkpoints/step-*.h5 | wc -l)" -le 3 ] || fail "old checkpoints are not removed"

# --resume auto starts a new training where there is nothing yet, and says so.
train 1 fresh --run-dir fresh --resume auto || fail "--resume auto without a checkpoint failed"
grep -q -- '--resume auto: there is no checkpoint in fresh/checkpoints yet' fresh.txt || fail "no word on the new start"

# Epochs with another batch size: each sample once an epoch.
train 1 epochs --run-dir epochs --epochs 2 --time-limit 0.001 || [ $? = 75 ] || fail "--time-limit did not stop the run"
grep -q 'warning: stopped by --time-limit after step 1;' epochs.err || fail "no word on the time limit"
train 2 epochs_2 --run-dir epochs --epochs 2 --resume latest --global-batch-size 10 || fail "another batch size failed"
seen() { sed -n "s/.*\"kind\":\"step\",.*\"epoch\":$1,.*\"samples\":\([0-9]*\),.*/\1/p" epochs/metrics.jsonl | awk '{ n += $1 } END { print n }'; }
[ "$(seen 1) $(seen 2)" = "40 40" ] || fail "epochs saw $(seen 1) and $(seen 2) samples, not 40 and 40"

# Inside the second epoch, one epoch is over.
train 1 past --run-dir past --steps 7 || fail "a run of 7 steps failed"
train 1 past_2 --run-dir past --epochs 1 --resume latest || fail "a run that is over failed"
grep -q 'nothing is left to do: the checkpoint is of step 7 ' past_2.txt || fail "a run that is over went on"

# What differs from the run that wrote the checkpoint is said.
train 1 other --run-dir past --steps 8 --resume latest --lr 2e-3 --weight-decay 0.1 || fail "another learning rate failed"
grep -q 'other than in the checkpoint: weight-decay 0.1 (0), lr 0.002 (0.001), steps 8 (7)' other.txt ||
  fail "no word on what differs: $(grep 'other than' other.txt)"

# A signal while data are made that take hours: that is said, and not waited for.
"${launcher[@]}" 2 "$program" --run-dir making --depth 1 --embed-dim 32 --image-size 64x128 --generated-samples 8000 \
  >making.txt 2>making.err &
job=$!
for _ in $(seq 600); do
  ! grep -q 'generating 8066 samples of weather in memory, .*: [0-9]* % done, [0-9.]* [a-z]* to go' making.txt || break
  kill -0 $job 2>/dev/null || fail "the run ended before its data were made"
  sleep 0.1
done
kill -USR1 $job
ended 75
grep -q 'stopped by SIGUSR1 while weather was generated in memory' making.err || fail "no word on the signal"
echo "resume: passed"
