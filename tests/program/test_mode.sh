#!/usr/bin/env bash
# The test mode: so many steps of the real run, measured; no checkpoint, no validation, and what it is combined with.
#
#   test_mode.sh PROGRAM WORK_DIR LAUNCHER...   (whose last word takes the number of ranks; 4 are used at most)
set -euo pipefail

program=$1 work=$2
shift 2
launcher=("$@")
fail() { echo "test_mode: $*" >&2; tail -n 5 "$work"/*.err >&2 || true; exit 1; }

rm -rf "$work"
mkdir -p "$work"
cd "$work"

# train RANKS NAME OPTIONS...
train() {
  local ranks=$1 name=$2
  shift 2
  "${launcher[@]}" "$ranks" "$program" --generated-samples 32 --generated-valid-samples 5 --depth 2 --embed-dim 32 \
    --run-dir "$name" "$@" >"$name.txt" 2>"$name.err"
}
count() { grep -c "\"kind\":\"$2\"" "$1/metrics.jsonl" || true; }
losses() { sed -n 's/.*"kind":"step".*"loss":\([^,]*\),.*/\1/p' "$1/metrics.jsonl"; }
said() { grep -qF -- "$2" "$1.txt" || fail "$1 does not say '$2'"; }

# The steps are those of the real run, with its learning rates.
train 2 real --steps 12 || fail "the real run failed"
train 2 measured --steps 12 --test-steps 6 --checkpoint-every 2 --checkpoint-at-start || fail "the test failed"
[ "$(losses measured)" = "$(losses real | head -n 6)" ] || fail "the test's steps are not those of the run"
[ "$(count measured step) $(count measured valid) $(count measured epoch) $(count measured test)" = "6 0 0 1" ] ||
  fail "a test of 6 steps has $(count measured step) step, $(count measured valid) valid, $(count measured epoch) epoch, \
$(count measured test) test records"
[ -z "$(ls measured/checkpoints)" ] || fail "the test saved $(ls measured/checkpoints)"
grep '"kind":"test"' measured/metrics.jsonl | grep -q '"steps":5,"warm_up_steps":1,' || fail "1 step of 6 should warm up"
grep '"kind":"test"' measured/metrics.jsonl | grep -qE '"rank":1,"host":"[^"]+","stage":[01],"seconds"' || fail "the record has no memory by rank"
grep -q '"kind": "test"' measured/summary.json || fail "summary.json has no figures of the test"
said measured 'some batches of a validation; no checkpoint'
said measured 'a validation: '
said measured 'test of 5 steps, after 1 that warm up'
for part in step 'data wait' forward backward reduce optimizer communication; do
  grep -qE "^  $part +[0-9.]+ +[0-9.]+ +[0-9.]+ +[01]$" measured.txt || fail "no times of '$part'"
done
grep -qE '^  [0-9.]+ % of the measured matmul roof of all ranks, [0-9.]+ [GT]FLOP/s$' measured.txt || fail "no roof"
grep -qE '"percent_of_roof": [0-9]' measured/summary.json || fail "summary.json has no share of the roof"
said measured 'an epoch: 2 steps and 1 validation, '
said measured 'the whole training: 12 steps and 7 validations, '
[ "$(grep -c '^power: ' measured.txt)" = 2 ] || fail "not two lines on power"
if grep -qE 'Avg val loss|Time taken for epoch' measured.txt; then fail "the test tells of epochs or validation"; fi

# More steps than the run has; stages that read nothing; the short name.
train 4 long --steps 3 --test-steps 5 --pp 2 --tp 2 || fail "a test longer than its run failed"
[ "$(count long step)" = 5 ] || fail "the long test has $(count long step) steps, not 5"
said long 'the whole training: 3 steps and '
"$program" --test --print-config | grep >/dev/null '^test_steps: 50' || fail "--test is not --test-steps 50"

# Stopped before anything was measured.
code=0
train 1 stopped --test-steps 6 --time-limit 0.001 || code=$?
[ $code = 75 ] || fail "the stopped test ended with $code, not 75"
grep -q 'warning: the test was stopped before a step counted' stopped.err || fail "no word on the stopped test"
grep -q 'nothing was saved (--test-steps)' stopped.err || fail "no word on what the stopped test leaves"
grep -q '"test": null' stopped/summary.json || fail "the stopped test has figures"

# From a checkpoint, into a folder of its own: the run's folder stays as it was.
before=$(ls -lR --time-style=full-iso real)
train 1 onward --steps 12 --resume real/checkpoints --test-steps 2 || fail "a test from a checkpoint failed"
[ "$(count onward resume) $(count onward step)" = "1 2" ] || fail "the test from a checkpoint did not go on"
grep -m 1 '"kind":"step"' onward/metrics.jsonl | grep -q '"step":13,' || fail "the test began anew"
code=0
train 1 real --steps 12 --resume real/checkpoints --test-steps 2 || code=$?
[ $code = 73 ] || fail "a test in the folder of a run ended with $code, not 73"
train 1 real --resume auto --test-steps 2 && fail "--resume auto with a test was taken"
grep -q -- '--test-steps 2 measures and saves nothing, and with --resume auto' real.err || fail "no word on --resume auto"
[ "$(ls -lR --time-style=full-iso real)" = "$before" ] || fail "a test changed the run's folder"

# The learning-rate range test: so many steps, whose rates rise, in every layout; it ends where the loss diverges.
ranges() {
  train 4 "$1" --find-lr 15 "${@:2}" || fail "the range test $1 failed"
  grep -qE 'learning-rate range test of [0-9]+ steps: the smoothed loss (diverged at|did not diverge up to) a learning rate of' "$1.txt" || fail "$1 tells no end"
  [ -z "$(ls "$1/checkpoints")" ] || fail "a range test leaves checkpoints"
  [ "$(count "$1" valid) $(count "$1" epoch)" = "0 0" ] || fail "a range test validates or tells of epochs"
  python3 - "$1/summary.json" <<'PYTHON' || fail "the curve of $1"
import json, sys
found = json.load(open(sys.argv[1]))["find_lr"]
rates = [rate for rate, _, _ in found["curve"]]
assert abs(rates[0] - 1e-7) < 1e-12 and rates == sorted(rates) and len(rates) <= 15, rates
assert found["steepest"] in rates and found["of_least_loss"] in rates, found
PYTHON
}
ranges replicas --dp 4
ranges stages --tp 2 --pp 2
code=0
train 1 replicas --find-lr 15 || code=$?
[ $code = 73 ] && grep -q 'allowed: a new or empty folder; name' replicas.err || fail "a range test in the folder of one ended with $code"
for options in "--test-steps 5" "--resume somewhere"; do
  code=0
  # shellcheck disable=SC2086
  train 1 refused --find-lr 40 $options || code=$?
  [ $code = 64 ] && grep -q -- '--find-lr' refused.err || fail "--find-lr with $options ended with $code"
done
echo "test_mode: passed"
