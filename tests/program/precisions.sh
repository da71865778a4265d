#!/usr/bin/env bash
# Trains the same forecaster on generated weather in fp32, bf16 and fp16 and compares what they have learnt: all beat
# persistence, and the validation losses are the same but for half a per cent. TF32, which a CPU has not, is fp32 there.
#
#   precisions.sh PROGRAM WORK_DIR LAUNCHER...   (whose last word takes the number of ranks)
set -euo pipefail

program=$1 work=$2
shift 2
fail() { echo "precisions: $*" >&2; exit 1; }

rm -rf "$work"
mkdir -p "$work"
cd "$work"
train() {
  local name=$1
  shift
  "${launch[@]}" "$program" --dp 2 --steps 96 --image-size 16x32 --in-channels 4 --patch-size 4 --embed-dim 64 --depth 3 \
    --num-heads 4 --lr 2e-3 --warmup 8 --generated-samples 256 --generated-valid-samples 32 --run-dir "$name" \
    --keep-checkpoints none "$@" >"$name.txt" || fail "the run $name ended with exit code $?"
}
launch=("$@" 2)
# Their bits are compared: two measurements of the fp32 kernel might choose differently.
train fp32 --precision fp32 --deterministic
train tf32 --precision tf32 --device cpu --deterministic
train bf16 --precision bf16
train fp16 --precision fp16
train fp16_half --precision fp16 --grad-dtype half
train bf16_half --precision bf16 --reduce-dtype half

# The last validation loss, that of persistence's error in the same units, and the steps that were skipped.
last() { grep '"kind":"valid"' "$1/metrics.jsonl" | tail -n 1 | sed "s/.*\"$2\":\\([^,}]*\\).*/\\1/"; }
reference=$(last fp32 loss)
for name in bf16 fp16 fp16_half bf16_half; do
  loss=$(last "$name" loss)
  awk -v a="$loss" -v b="$reference" 'BEGIN { exit !(a < 1.005 * b && b < 1.005 * a) }' ||
    fail "$name ends with the validation loss $loss, fp32 with $reference"
done
[ "$(last tf32 loss)" = "$reference" ] || fail "tf32 ends with $(last tf32 loss), fp32 with $reference"
grep -q 'products in fp32, because a CPU has no TF32' tf32.txt || fail "tf32 says not that it is fp32"
first=$(grep -m 1 '"kind":"valid"' fp32/metrics.jsonl | sed 's/.*"loss":\([^,}]*\).*/\1/')
awk -v a="$reference" -v b="$first" 'BEGIN { exit !(a < 0.7 * b) }' || fail "fp32 has learnt nothing: $first, then $reference"

# Losses of the first step agree to the rounding of the type, so bf16 was really used: its loss is another one.
step_loss() { grep -m 1 '"kind":"step"' "$1/metrics.jsonl" | sed 's/.*"loss":\([^,}]*\).*/\1/'; }
[ "$(step_loss bf16)" != "$(step_loss fp32)" ] || fail "bf16 computes the bits of fp32"
grep -q '"loss_scale":65536' fp16/metrics.jsonl || fail "fp16 has no loss scale"
grep -q '"loss_scale":1.0' bf16/metrics.jsonl || fail "bf16 has a loss scale"
echo "precisions: passed; validation losses $(for n in fp32 bf16 fp16 fp16_half bf16_half; do echo -n "$n $(last $n loss) "; done)"
