#!/usr/bin/env bash
# The kernel of linear layers in fp32 is measured at the start of a training, stored with its checkpoints, and taken over
# by runs that go on and by evaluations; --retune and --deterministic do otherwise. The start says which it is and why.
#
#   host_kernel.sh PROGRAM WORK_DIR LAUNCHER...   (whose last word takes the number of ranks; 2 are used)
set -euo pipefail

program=$1 work=$2
shift 2
launcher=("$@")
fail() { echo "host_kernel: $*" >&2; tail -n 5 "$work"/*.err >&2 || true; exit 1; }

rm -rf "$work"
mkdir -p "$work"
cd "$work"
export XDG_CACHE_HOME=$work/cache
# Options that single runs change.
export VIT_HYBRID_EMBED_DIM=64 VIT_HYBRID_MICRO_BATCH_SIZE=4

# on NAME WORDS...: the program on two ranks; its output is in NAME.txt and NAME.err
on() {
  local name=$1
  shift
  "${launcher[@]}" 2 "$program" "$@" >"$name.txt" 2>"$name.err" || fail "$name ended with exit code $?"
}
# train NAME OPTIONS...: the run NAME
train() {
  local name=$1
  shift
  on "$name" --task forecast --image-size 16x32 --patch-size 4 --in-channels 8 --depth 2 --num-heads 4 \
    --train-data data/train --valid-data data/valid --stats data/stats --global-batch-size 16 \
    --steps 6 --checkpoint-every 3 --keep-checkpoints 4 --run-dir "$name" "$@"
}
# says NAME TEXT: the line on products is of the host's fp32 kernel, for this reason
says() { grep -qE "^  products  .*\($2" "$1.txt" || fail "$1 lacks '$2': $(grep '^  products' "$1.txt")"; }
measured='([A-Za-z ]+ processor; )?measured: ([A-Za-z ]+ (is|are) )?[0-9.]+ times as fast'
was_measured() { grep -q '^kernel of fp32 products measured on all ranks in [0-9.]* s' "$1.txt"; }
losses() { sed -n 's/.*"kind":"step","step":\([0-9]*\),.*"loss":\([^,]*\),.*/\1 \2/p' "$1/metrics.jsonl" | tail -n "$2"; }

on data data generate --out data --train-years 1 --valid-years 1 --steps-per-year 40 --height 16 --width 32

train straight
if grep -q '^  products  .*no block kernel of' straight.txt; then
  echo "host_kernel: [skipped] there is one kernel here: $(grep '^  products' straight.txt)"
  exit 77
fi
says straight "$measured"
was_measured straight || fail "a new run measures nothing"
head -n 1 straight/metrics.jsonl | grep -qE "\"products\":\"[^\"]*\($measured" || fail "the start record has no figure"
grep -qE '"kind":"kernels",.*"fp32 products on the host":\{"kernel":"(blocked|library)",.*"us":[0-9]*\.?[0-9]+' \
  straight/metrics.jsonl || fail "no record of the kernels"
[ "$(wc -l <straight/kernels.txt)" = 3 ] || fail "kernels.txt has not one choice"

# The next run takes the machine's kept choice, measures nothing and computes the same bits.
kept=$(ls cache/vit_hybrid/fp32_products-*.txt) || fail "nothing is kept in the cache folder"
[ "$(wc -l <"$kept")" = 3 ] || fail "the cache has not one choice: $kept"
train second
says second "as kept for this machine; $measured"
if was_measured second; then fail "the second run measures again"; fi
cmp straight/kernels.txt second/kernels.txt || fail "the second run has another choice"
[ "$(losses second 6)" = "$(losses straight 6)" ] || fail "the second run has other losses"
# It is the file that decides: the other kernel in it is taken.
chosen=$(sed -n '3p' "$kept" | cut -f 2)
case $chosen in blocked) other=library ;; *) other=blocked ;; esac
cp "$kept" kept.txt
sed -i "3s/\t$chosen\t/\t$other\t/" "$kept"
train turned
[ "$(cut -f 2 turned/kernels.txt | sed -n 3p)" = $other ] || fail "the kept choice is not taken"
# The packed copies of the weights, which come with the kernel, are a class of memory of their own.
packed() { sed -n 's/^ *"packed_weights": \([0-9]*\).*/\1/p' "$1/summary.json" | head -n 1; }
case $chosen in blocked) blocked=straight library=turned ;; *) blocked=turned library=straight ;; esac
copies=$((2 * 4 * 12 * 64 * 64 * 2))  # two forms, 4 bytes, 12 D^2 weights a block, 2 blocks
[ "$(packed $blocked)" -ge $copies ] || fail "the packed weights are $(packed $blocked) bytes, not $copies or more"
[ "$(packed $library)" -lt $copies ] || fail "$(packed $library) bytes of packed weights without own blocks"
# A variable of the threads is another machine.
OMP_WAIT_POLICY=passive train waiting
was_measured waiting || fail "another setting of the threads takes the choice of this one"
# What is damaged or cannot be kept is told in one line.
echo damaged >"$kept"
train damaged
was_measured damaged || fail "a damaged choice is used"
[ "$(grep -c 'warning: the kernel choice kept in .* is not used: saved kernel choices, line 1' damaged.err)" = 1 ] ||
  fail "not one line on the damaged choice"
[ "$(sed -n 3p "$kept")" = "$(sed -n 3p damaged/kernels.txt)" ] || fail "the damaged choice was not replaced"
echo file >no_folder
XDG_CACHE_HOME=$work/no_folder train nowhere
[ "$(grep -c 'warning: the kernel choice is not kept for later runs: ' nowhere.err)" = 1 ] || fail "not one line on the cache"
[ -z "$(find cache -name '*.part')" ] || fail "temporary files are left"
cp kept.txt "$kept"

# A run that goes on measures nothing, and is the same to the last bit: the checkpoint's choice comes before the kept one.
sed -i "3s/\t$chosen\t/\t$other\t/" "$kept"
half=straight/checkpoints/step-000000003.h5
train resumed --resume $half
says resumed "as saved in the checkpoint; $measured"
if was_measured resumed; then fail "a resumed run measures again"; fi
cmp straight/kernels.txt resumed/kernels.txt || fail "the resumed run stores another choice"
[ "$(losses resumed 3)" = "$(losses straight 3)" ] || fail "the resumed run has other losses"
"$program" checkpoint diff straight/checkpoints resumed/checkpoints >diff.txt || fail "other bits: $(cat diff.txt)"

train retuned --resume $half --retune
says retuned "$measured"
grep -q '^kernel of fp32 .* s, the saved ones given up by --retune$' retuned.txt || fail "--retune gives up nothing"
[ "$(sed -n 3p "$kept")" = "$(sed -n 3p retuned/kernels.txt)" ] || fail "--retune does not keep its choice"

# Another number of threads is another machine.
rm -r cache
train threads --resume $half --threads 2
says threads "$measured"
grep -q '^kernel of fp32 .* s, the saved ones were for .*--threads 1,' threads.txt || fail "the saved one was taken over"

# Without measuring: the processor's usual kernel.
train usual --deterministic
train usual_again --deterministic --retune --resume $half
for run in usual usual_again; do
  says $run '[A-Za-z ]+ processor; not measured: --deterministic[;)]'
  if was_measured $run; then fail "$run measures with --deterministic"; fi
done

# Evaluations take the stored kernel, or are told otherwise like trainings.
evaluate() {
  local name=$1
  shift
  on "$name" evaluate --checkpoint straight/checkpoints --data data/valid "$@"
}
evaluate evaluated
says evaluated "as saved in the checkpoint; $measured"
if was_measured evaluated; then fail "the evaluation measures"; fi
evaluate evaluated_usual --deterministic --threads 2
says evaluated_usual '[A-Za-z ]+ processor; not measured: --deterministic[;)]'
if was_measured evaluated_usual; then fail "the evaluation measures with --deterministic"; fi
evaluate evaluated_anew --retune
grep -q '^kernel of fp32 .* s, the saved ones given up by --retune$' evaluated_anew.txt ||
  fail "--retune gives up nothing in an evaluation"

# What has no products in fp32, and what has only small ones.
train doubles --precision fp64
if was_measured doubles || [ -e doubles/kernels.txt ]; then fail "fp64 measures a kernel of fp32"; fi
train small --embed-dim 16 --micro-batch-size 1
says small 'not measured: products as small as those of this model'
grep -q '^  products  [^(]*the BLAS of LibTorch[^(]*(' small.txt || fail "small products are not said to be the library's"
[ ! -e small/kernels.txt ] || fail "a choice of small products is stored"
echo "host_kernel: passed; $(sed -n 's/^  products  //p' straight.txt)"
