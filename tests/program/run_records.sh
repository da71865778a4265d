#!/usr/bin/env bash
# Trains the built-in default on a 2 x 2 x 2 mesh for a few steps and checks the records: lines that users grep for, one
# record a step, every tensor byte of every rank in a class, and a configuration that is accepted again.
#
#   run_records.sh PROGRAM WORK_DIR RANKS LAUNCHER...   (whose last word takes the number of ranks)
set -euo pipefail

program=$1 work=$2 ranks=$3
shift 3
fail() { echo "run_records: $*" >&2; exit 1; }

rm -rf "$work"
mkdir -p "$work"
cd "$work"
train() { "$@" --dp 2 --tp 2 --pp 2 --steps 3 --generated-samples 32 --generated-valid-samples 5; }
train "$@" "$ranks" "$program" --run-dir first >first.txt || fail "the run ended with exit code $?"

grep -qE '^Time taken for epoch 1 is [0-9.]+ sec, avg [0-9.]+ samples/sec$' first.txt || fail "no line on the epoch's time"
grep -qE '^ *Avg train loss=[0-9.]+$' first.txt || fail "no line on the training loss"
grep -qE '^ *Avg val loss=[0-9.]+$' first.txt || fail "no line on the validation loss"
grep -qE '^ *Data wait: [0-9.]+ % of the time, [0-9.]+ % where the slowest rank' first.txt || fail "no line on data wait"
[ "$(grep '"kind":"step"' first/metrics.jsonl | grep -cE '"data_wait_mean":[0-9.e-]+,"data_wait_max":[0-9.e-]+,')" = 3 ] ||
  fail "not every step says how long its ranks waited for data"
[ "$(grep -c '"data_wait": [0-9]' first/summary.json)" = $((2 * ranks)) ] || fail "not two figures of data wait a rank"
[ "$(grep -c '"own_seconds": {' first/summary.json)" = "$ranks" ] || fail "not the own work of every rank"
"$program" --version | grep -qE '^MPI [A-Z].*[0-9]' || fail "--version names no MPI library"
for file in config.yaml out.log metrics.jsonl summary.json; do
  [ -s "first/$file" ] || fail "the run left no $file"
done
[ "$(grep -c '"kind":"step"' first/metrics.jsonl)" = 3 ] || fail "not one record a step"
head -n 1 first/metrics.jsonl | grep -q '"git_commit"' || fail "the start record names no commit"
[ "$(grep -c '"total_peak"' first/summary.json)" = "$ranks" ] || fail "not one memory report a rank"
[ "$(grep -c '"process_peak": [1-9]' first/summary.json)" = "$ranks" ] || fail "not the peak of every rank's process"
head -n 1 first/metrics.jsonl | grep -qE '"kernels":\{"types":"[^"]+","processor":"[^"]+","products":"[^"]+","attention":"' ||
  fail "the start record names no kernels"
for name in types processor products attention optimizer; do
  grep -qE "^  $name +[^ ]" first.txt || fail "no line on '$name' at the start"
  grep -qE "\"$name\": \"[^\"]" first/summary.json || fail "summary.json has no '$name'"
done
grep -qE '^speed: [0-9.]+ samples/s \(median of the steps\), [0-9.]+ [GT]FLOP/s' first.txt || fail "no line on speed"
# Only where these steps took long, as with a sanitizer, is it worth measuring.
roof='the measured matmul roof of all ranks'
grep -qE "^  ($roof: not known; it is measured with --test, or after|[0-9.]+ % of $roof, [0-9.]+ [GT]FLOP/s)" first.txt ||
  fail "nothing is said of the roof"
grep -qE '^time of the steps, mean of the ranks: .*forward [0-9.]+ %, backward' first.txt || fail "no line on time by phase"
bytes='[0-9.]+ [KMG]iB'
grep -qE "^  memory +of the fullest rank \(stage 0, --recompute none\) $bytes; peaks: " first.txt || fail "no estimate of the activations"
grep -qE "^most memory of a rank: tensors $bytes \(predicted $bytes; .*\), process $bytes" \
  first.txt || fail "no line on memory"
grep -qE '"model_flops_per_s": [0-9]' first/summary.json || fail "summary.json has no speed"
if grep '"untagged"' first/summary.json | grep -vqE '"untagged": 0,?$'; then
  fail "tensor bytes without a class: $(grep '"untagged"' first/summary.json | sort | uniq -c)"
fi

train "$@" "$ranks" "$program" --config first/config.yaml --run-dir second >second.txt ||
  fail "the run's own configuration is refused"
losses() { sed -n 's/.*"kind":"step".*"loss":\([^,]*\),.*/\1/p' "$1/metrics.jsonl"; }
[ "$(losses first)" = "$(losses second)" ] || fail "the same configuration gives other losses"
echo "run_records: passed"
