#!/usr/bin/env bash
# Trains on one's own files without an option of their shape, and looks at what is said where one is given and does not
# fit, of fields and of images, and at a classifier where nothing but the task is given.
#
#   data_shape.sh PROGRAM WORK_DIR RANKS LAUNCHER...   (whose last word takes the number of ranks)
set -euo pipefail

program=$1 work=$2 ranks=$3
shift 3
launcher=("$@")
[ ${#launcher[@]} -eq 0 ] || launcher+=("$ranks")
fail() { echo "data_shape: $*" >&2; tail -n 5 "$work"/*.err >&2 || true; exit 1; }

rm -rf "$work"
mkdir -p "$work"
cd "$work"

# on NAME WORDS...: the program; its output is in NAME.txt and NAME.err
on() {
  local name=$1
  shift
  "${launcher[@]}" "$program" "$@" >"$name.txt" 2>"$name.err"
}

# refused TEXT WORDS...: the words end with 64 and one message that holds the text
refused() {
  local code=0 text=$1
  shift
  on refused "$@" || code=$?
  [ "$code" = 64 ] || fail "exit code $code, not 64: $*"
  [ "$(grep -c '^vit_hybrid: ' refused.err)" = 1 ] || fail "not one message: $*"
  grep -qF -e "$text" refused.err || fail "the message lacks '$text': $*"
}

small=(--patch-size 4 --embed-dim 32 --depth 2 --num-heads 4 --steps 2 --global-batch-size 8)
on data data generate --out era --train-years 1 --valid-years 1 --steps-per-year 12 --height 16 --width 24 --channels 5 ||
  fail "no data"
on images data generate images --out shapes --train-images 40 --valid-images 8 --size 20 --classes 4 || fail "no images"

# Fields.
era=(--train-data era/train --valid-data era/valid --stats era/stats "${small[@]}")
on fields "${era[@]}" --run-dir fields || fail "no training without a shape"
grep -qF 'from the data in era/train: image-size 16x24, in-channels 5, out-channels 5' fields.txt ||
  fail "it is not said what the data gave"
"$program" --print-config "${era[@]}" >config.yaml || fail "no configuration"
grep -qE '^image_size: 16x24 +# the data$' config.yaml || fail "the configuration lacks the data's size"
on again --config config.yaml --run-dir again || fail "the configuration is refused"
refused 'the model does not fit the data in era/train: --image-size 32x64 was given on the command line, the data have 16x24; --in-channels 20 was given on the command line, the data have 5: give --image-size 16x24 --in-channels 5, or leave them out' \
  "${era[@]}" --in-channels 20 --image-size 32x64
refused 'patch_height is 17, more than the 16 rows' "${era[@]}" --patch-size 17x5

# The model of a checkpoint does not follow: the data have to.
on other data generate --out other --train-years 1 --valid-years 1 --steps-per-year 12 --height 16 --width 32 --channels 5 ||
  fail "no other data"
for use in "evaluate --out x.json" "forecast --out x.h5"; do
  refused "5 channels of 16 x 32, the model takes 5 channels of 16 x 24" \
    $use --checkpoint fields/checkpoints --data other/valid --stats other/stats --tp "$ranks"
  grep -qF "the checkpoint's model stays as it was trained: give data with its" refused.err || fail "no side is named"
done

# Images.
shapes=(--task classify --train-data shapes/train.h5 --valid-data shapes/valid.h5 "${small[@]}")
on pictures "${shapes[@]}" --run-dir pictures || fail "no classifier without a shape"
grep -qF 'from the data in shapes/train.h5: image-size 20x20, in-channels 3, num-classes 4' pictures.txt ||
  fail "it is not said what the images gave"
refused '--num-classes 1000 was given on the command line, the data have 4: give --num-classes 4, or leave it out' \
  "${shapes[@]}" --num-classes 1000

# Nothing but the task; and built-in weather of another size.
on classifier --task classify --steps 2 --global-batch-size 8 --run-dir classifier || fail "no built-in classifier"
grep -qF 'training the built-in default, a small classifier on images painted in memory' classifier.txt ||
  fail "it is not said what is trained"
grep -q '"top1"' classifier/metrics.jsonl || fail "the classifier has no score"
on builtin --data builtin --image-size 16x32 --embed-dim 64 --steps 2 --generated-samples 8 --generated-valid-samples 2 \
  --global-batch-size 8 --run-dir builtin || fail "built-in data of another size are refused"
echo "data_shape: passed"
