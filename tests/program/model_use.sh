#!/usr/bin/env bash
# Trains a small forecaster and puts it to use: evaluation in other layouts, a forecast with its files, a training that
# starts from its weights, and what it cannot be used for.
#
#   model_use.sh PROGRAM WORK_DIR LAUNCHER...   (whose last word takes the number of ranks; 4 are used at most)
set -euo pipefail

program=$1 work=$2
shift 2
launcher=("$@")
fail() { echo "model_use: $*" >&2; tail -n 5 "$work"/*.err >&2 || true; exit 1; }

rm -rf "$work"
mkdir -p "$work"
cd "$work"

# on RANKS NAME WORDS...: the program; its output is in NAME.txt and NAME.err
on() {
  local ranks=$1 name=$2
  shift 2
  "${launcher[@]}" "$ranks" "$program" "$@" >"$name.txt" 2>"$name.err"
}

# refused CODE TEXT RANKS WORDS...: the words end with this exit code and one message that holds the text
refused() {
  local code=0 want=$1 text=$2 ranks=$3
  shift 3
  on "$ranks" refused "$@" || code=$?
  [ "$code" = "$want" ] || fail "exit code $code, not $want: $*"
  [ "$(grep -c '^vit_hybrid: ' refused.err)" = 1 ] || fail "not one message: $*"
  grep -qF -e "$text" refused.err || fail "the message lacks '$text': $*"
}

model=(--task forecast --patch-size 4 --in-channels 8 --embed-dim 32 --depth 2 --num-heads 4)
on 1 data data generate --out data --train-years 1 --valid-years 1 --steps-per-year 20 --height 16 --width 32 ||
  fail "no data"
on 2 train "${model[@]}" --image-size 16x32 --train-data data/train --valid-data data/valid --stats data/stats --tp 2 --steps 4 \
  --global-batch-size 8 --run-dir run || fail "no training"
checkpoint=run/checkpoints

# The loss of the last validation, in any layout.
validated=$(sed -n 's/^  Avg val loss=//p' train.txt | tail -n 1)
on 1 one evaluate --checkpoint $checkpoint --data data/valid --out one.json || fail "no evaluation on one rank"
mkdir staged
on 4 four evaluate --checkpoint $checkpoint --data data/valid --dp 2 --pp 2 --valid-batch-size 3 --out four.json \
  --stage-data node --stage-dir staged --pin-memory off || fail "no evaluation on four ranks"
grep -q 'read direct, copied to staged of each node' four.txt || fail "the data of an evaluation were not copied"
for name in one four; do
  grep -qE '^  types +parameters and activations fp32$' $name.txt || fail "$name does not say in which types it counts"
  loss=$(sed -n 's/.*samples, loss //p' $name.txt)
  awk -v a="$loss" -v b="$validated" 'BEGIN {exit !(a - b < 2e-6 && b - a < 2e-6)}' ||
    fail "the loss of the evaluation is $loss, that of the validation $validated"
  grep -q '"persistence_rmse"' $name.json || fail "$name.json has no persistence"
done
grep -qE '^height +[0-9.]+ +[0-9.]+ +-?[0-9.]+ +-?[0-9.]+$' one.txt || fail "no line for the channel height"

# The checkpoint and data are enough. Other statistics are taken with a warning, and no run goes on with them.
mv data/stats data/elsewhere
on 2 alone evaluate --checkpoint $checkpoint --data data/valid || fail "no evaluation without the statistics' files"
grep -qF "normalised with the checkpoint's statistics" alone.txt || fail "it is not said whose statistics are taken"
[ "$(grep -E '^(height|u) ' alone.txt | cut -c 1-50)" = "$(grep -E '^(height|u) ' one.txt | cut -c 1-50)" ] ||
  fail "the stored statistics give other figures"
mv data/elsewhere data/stats
on 1 stats data stats data/valid --out other_stats || fail "no other statistics"
on 1 other evaluate --checkpoint $checkpoint --data data/valid --stats other_stats || fail "no evaluation with --stats"
grep -qF 'are used, which are not those of the training: channel 0 (u) has the mean' other.err ||
  fail "other statistics are used with no word"
refused 64 "the model was trained with" 2 --config run/config.yaml --run-dir run --resume latest --stats other_stats --steps 8
on 1 inspected checkpoint inspect run || fail "no inspection"
grep -qE '^  means +-?[0-9]' inspected.txt || fail "the means are not shown"

# The fields and the figures.
on 4 forecast forecast --checkpoint $checkpoint --data data/valid --start 15 --steps 6 --tp 2 --pp 2 \
  --out forecast.h5 || fail "no forecast"
[ "$(head -c 4 forecast.h5 | tail -c 3)" = HDF ] || fail "forecast.h5 is no HDF5 file"
[ "$(grep -c '"lead"' forecast.json)" = 4 ] || fail "not one record for each of the 4 lead times with truth"
grep -qE '^  attention +[^ ]' forecast.txt || fail "the forecast does not say which kernels it takes"
grep -q 'those from 5 to 6 have no truth' forecast.txt || fail "nothing is said of the lead times without truth"
[ "$(grep -cE '^ +[1-4]( +-?[0-9.]+){5}$' forecast.txt)" = 4 ] || fail "no line for each lead time"
refused 73 "'forecast.h5' is there already" 2 \
  forecast --checkpoint $checkpoint --data data/valid --out forecast.h5 --tp 2
refused 64 "a forecast is one trajectory" 2 forecast --checkpoint $checkpoint --data data/valid --out other.h5
[ ! -e other.h5 ] || fail "a refused forecast left a file"

# A new training from the weights, on another grid; another depth cannot be.
on 2 start "${model[@]}" --image-size 24x40 --data builtin --generated-samples 8 --generated-valid-samples 0 --steps 1 \
  --global-batch-size 4 --run-dir second --init-from $checkpoint --pp 2 --gelu tanh || fail "no training from the weights"
grep -qE '^ epoch +train loss +samples/s$' start.txt || fail "a run without validation has columns of one"
grep -q 'positions resized from 4 x 8 to 6 x 10 patches' start.err || fail "nothing is said of the positions"
grep -q 'trained with --gelu erf, and --gelu is tanh' start.err || fail "nothing is said of the other GELU"
refused 64 "--depth is 3, the checkpoint's is 2" 2 --task forecast --image-size 16x32 --patch-size 4 \
  --in-channels 8 --embed-dim 32 --depth 3 --num-heads 4 --data builtin --generated-samples 8 \
  --steps 1 --global-batch-size 4 --run-dir third --init-from $checkpoint

# A classifier makes no forecast.
on 1 classifier --task classify --data synthetic --image-size 16 --patch-size 4 --in-channels 3 --embed-dim 32 --depth 1 \
  --num-heads 4 --num-classes 3 --generated-samples 4 --generated-valid-samples 0 --global-batch-size 4 --steps 1 \
  --run-dir classifier || fail "no classifier"
refused 64 "it makes no forecast" 1 forecast --checkpoint classifier/checkpoints --data data/valid --out other.h5
echo "model_use: passed"
