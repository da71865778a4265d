#!/usr/bin/env bash
# Trains for a few steps and looks at the checkpoints with every command `checkpoint ...`: output, files and exit codes.
#
#   checkpoint_tools.sh PROGRAM WORK_DIR LAUNCHER...   (whose last word takes the number of ranks)
set -euo pipefail

program=$1 work=$2
shift 2
fail() { echo "checkpoint_tools: $*" >&2; exit 1; }
# expect CODE WORDS...: runs the program, whose exit code must be CODE; its output is in `text`.
expect() {
  local code=$1 got=0
  shift
  text=$("$program" checkpoint "$@" 2>&1) || got=$?
  [ "$got" = "$code" ] || fail "'checkpoint $*' ended with $got, not $code: $text"
}
says() { grep -qF -- "$1" <<<"$text" || fail "no '$1' in: $text"; }

rm -rf "$work"
mkdir -p "$work"
cd "$work"
train() { "$@" --image-size 16x32 --depth 2 --embed-dim 32 --steps 2 --generated-samples 32 --generated-valid-samples 4; }
train "$program" --run-dir serial >serial.txt || fail "the run ended with exit code $?"
train "$@" 4 "$program" --run-dir parallel --tp 2 --pp 2 >parallel.txt || fail "the parallel run ended with $?"
train "$program" --run-dir other --seed 2 >other.txt || fail "the run ended with exit code $?"
file=$(echo serial/checkpoints/step-*2.h5)

expect 0 inspect serial
says "parameters  34720, float32, optimizer adam: exp_avg, exp_avg_sq"
says "parameters/blocks.1.mlp.fc2.weight"
says "precision   fp32"
expect 0 inspect serial --print-config
says "embed_dim: 32"
expect 0 inspect --all serial
says "optimizer/exp_avg_sq/head.weight"
expect 0 verify serial parallel other/checkpoints
says "all checksums are right"

expect 0 diff serial "$file"
says "the same tensors"
expect 1 diff serial other
says "seed: 1 against 2"
says "parameters/blocks.0.attn.proj.bias: 32 of 32 values, the first at [0]:"
expect 1 diff --all serial parallel # the layouts round differently
says "tp 2 x pp 2"

# Dropout is no part of what the tensors compute: they are compared, and it is said.
for rate in 0 0.25; do
  train "$program" --run-dir "dropout$rate" --dropout $rate --drop-path $rate --checkpoint-at-start >dropout.txt ||
    fail "the run ended with exit code $?"
done
start() { echo "$1"/checkpoints/step-*0.h5; }
expect 0 diff "$(start dropout0)" "$(start dropout0.25)"
says "  --dropout: 0 against 0.25"
says "  --drop-path: 0 against 0.25"
says "the same tensors, model, position and data"
expect 1 diff dropout0 dropout0.25
says "first tensor:"
train "$program" --run-dir heads --num-heads 2 --checkpoint-at-start >heads.txt || fail "the run ended with exit code $?"
expect 1 diff "$(start dropout0)" "$(start heads)"
says "state:"
says "  --num-heads: 4 against 2"

# Data of other channels and statistics, and a file that another program wrote.
"$program" data generate --out data --train-years 1 --valid-years 0 --steps-per-year 20 --height 16 --width 32 --channels 7 \
  >data.txt || fail "data generate ended with exit code $?"
train "$program" --run-dir named --train-data data/train --stats data/stats --in-channels 7 --out-channels 7 >named.txt ||
  fail "the run ended with exit code $?"
expect 1 diff serial named
says "  channels: u,v,"
says "  means: 8 numbers against 7 numbers"
grep -q "libraries:" <<<"$text" && fail "one program has two sets of libraries: $text"

cp "$file" damaged.h5
printf 'X' | dd of=damaged.h5 bs=1 seek=$(($(stat -c %s damaged.h5) - 1000)) conv=notrunc status=none
expect 65 verify "$file" damaged.h5
says "damaged.h5: dataset '"
head -c 5000 "$file" >cut.h5
expect 65 verify cut.h5
expect 65 inspect serial/config.yaml
expect 66 inspect nowhere.h5
expect 66 inspect .
expect 64 inspect
expect 64 inspect "$file" --depth 3
expect 64 diff serial

expect 0 export serial --out model.safetensors
expect 73 export serial --out model.safetensors
expect 0 export serial --out model.safetensors --overwrite --names nersc
for of in serial "$file" serial/checkpoints; do
  expect 64 export $of --out "$file" --overwrite
  says "which is what is read"
done
expect 64 import model.safetensors --out ./model.safetensors --overwrite
says "which is what is read"
mkfifo pipe
expect 73 export serial --out pipe --overwrite
says "is no regular file"
[ -p pipe ] || fail "a FIFO was replaced"
expect 0 verify "$file"
expect 64 export serial --out other.safetensors --names torchvision
says "no head that predicts fields"
expect 64 export serial
expect 0 import model.safetensors --out weights.h5
says "34720 parameters"
expect 1 diff serial weights.h5
says "  libraries: LibTorch "
grep -qE "^  (means|stds|channels)" <<<"$text" && fail "export and import lost what is known of the data: $text"
says "optimizer/exp_avg/blocks.0.attn.proj.bias: only in the first"
says "step: 2 against 0"
expect 0 export weights.h5 --out again.safetensors
cmp <(tail -c 100000 model.safetensors) <(tail -c 100000 again.safetensors) || fail "other bytes after export and import"
expect 65 import model.safetensors --out x.h5 --embed-dim 48
says "the model's is ["
expect 65 import weights.h5 --out x.h5
expect 64 import model.safetensors
[ ! -e x.h5 ] && [ ! -e other.safetensors ] || fail "a refused command left its file"
ls ./*.partial 2>/dev/null && fail "something half written is left"

# The imported weights start a training: its first loss is that of the model they came from, at its next step.
train "$program" --run-dir started --init-from weights.h5 >started.txt || fail "--init-from ended with exit code $?"
last=$(grep 'val loss' serial.txt | grep -oE '[0-9]+\.[0-9]+' | tail -n 1)
grep -q "Untrained network: val loss=$last" started.txt || grep -q "val loss=$last" started.txt ||
  fail "the weights give another loss than $last: $(grep 'val loss' started.txt)"
echo "checkpoint_tools: passed"
