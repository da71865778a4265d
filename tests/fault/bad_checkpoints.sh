#!/usr/bin/env bash
# Resumes from what is no checkpoint, or not this run's, and looks at exit code, message and time.
#
#   bad_checkpoints.sh PROGRAM RANKS [LAUNCHER WORDS...]   (which end with the option that takes the number of ranks)
#
# Each case must end within LIMIT seconds, with its exit code, and with exactly one message, which comes from one rank,
# holds the text, and is all that there is on standard error.
set -u
program=$1
ranks=$2
shift 2
launcher=("$@")
[ ${#launcher[@]} -gt 0 ] && launcher+=("$ranks")

. "$(dirname "${BASH_SOURCE[0]}")/expect.sh"

# What single cases change.
export VIT_HYBRID_GENERATED_SAMPLES=16 VIT_HYBRID_GENERATED_VALID_SAMPLES=0 VIT_HYBRID_DEPTH=2 VIT_HYBRID_EMBED_DIM=32 \
  VIT_HYBRID_STEPS=4 VIT_HYBRID_DATA=builtin VIT_HYBRID_IMAGE_SIZE=32x64 VIT_HYBRID_PATCH_SIZE=4 \
  VIT_HYBRID_IN_CHANNELS=8 VIT_HYBRID_NUM_HEADS=4 VIT_HYBRID_GLOBAL_BATCH_SIZE=16

# refused CODE TEXT OPTIONS...
refused() {
  local want=$1 text=$2
  shift 2
  expect "$want" "$text" "${launcher[@]}" "$program" "$@"
}

"${launcher[@]}" "$program" --steps 2 --run-dir run >out 2>err || { code=$?; fail "the run itself"; exit 1; }
good=run/checkpoints/step-000000002.h5
[ -s "$good" ] || { code=0; fail "the run saved nothing"; exit 1; }

# damaged NAME: a copy to be spoilt
damaged() { cp "$good" "$1"; }
size=$(stat -c %s "$good")
damaged truncated.h5
truncate -s $((size / 2)) truncated.h5
damaged flipped.h5
byte=$(od -An -tu1 -j $((size - 1000)) -N 1 flipped.h5)
printf "$(printf '\\x%02x' $((byte ^ 16)))" | dd of=flipped.h5 bs=1 seek=$((size - 1000)) conv=notrunc status=none
# The seal's second line is "block BYTES hash ..."; HDF5's part of the file begins behind the block.
block=$((10#$(sed -n '2s/^block \([0-9]*\) .*/\1/p;2q' "$good" | tr -d '\0')))
damaged structure.h5
printf 'X' | dd of=structure.h5 bs=1 seek=$((block + 60)) conv=notrunc status=none
tail -c +$((block + 1)) "$good" >unsealed.h5
head -c 3000 /dev/zero | tr '\0' 'x' >foreign.h5
: >empty.h5
mkdir -p dangling/checkpoints nothing
touch dangling/config.yaml
echo step-000000009.h5 >dangling/checkpoints/latest

refused 65 "truncated.h5 is damaged: it has $((size / 2)) bytes, $size were written" --resume truncated.h5
refused 65 "checksum" --resume flipped.h5
refused 65 "structure.h5 is damaged: the bytes from $block to " --resume structure.h5
refused 65 "unsealed.h5 is no checkpoint of the formats 3 to 8: it does not begin with a checkpoint's seal" --resume unsealed.h5
refused 65 "foreign.h5" --resume foreign.h5
refused 65 "empty.h5" --resume empty.h5
refused 66 "nowhere.h5" --resume nowhere.h5
refused 66 "nothing" --resume nothing
refused 66 "--resume latest: there is no checkpoint in nothing/checkpoints" --resume latest --run-dir nothing
refused 66 "step-000000009.h5" --resume auto --run-dir dangling
mkdir -p unnamed/checkpoints
cp "$good" unnamed/checkpoints
echo 'seed: 1' >unnamed/config.yaml
refused 66 "unnamed/checkpoints/step-000000002.h5 is whole: name it with --resume" --resume latest --run-dir unnamed
: >unnamed/checkpoints/latest
refused 66 "but no 'latest' that can be read" --resume latest --run-dir unnamed

# auto takes the newest that is whole, and sets damaged newer ones aside, which are not overwritten on the way.
auto() {
  count=$((count + 1))
  "${launcher[@]}" "$program" --resume auto --run-dir unnamed "$@" >out 2>err || { code=$?; fail "auto: $*"; }
}
auto --steps 3 --keep-checkpoints 3
grep -qF "resumed from unnamed/checkpoints/step-000000002.h5" out || { code=0; fail "not resumed from the newest"; }
newest=unnamed/checkpoints/step-000000003.h5
printf "$(printf '\\x%02x' $(($(od -An -tu1 -j $((size - 1000)) -N 1 "$newest") ^ 16)))" |
  dd of="$newest" bs=1 seek=$((size - 1000)) conv=notrunc status=none
sum=$(cksum <"$newest")
refused 65 "step-000000002.h5 is whole" --resume latest --run-dir unnamed
[ "$(cksum <"$newest")" = "$sum" ] || { code=0; fail "a refused start changed the checkpoint"; }
auto --steps 3 --keep-checkpoints 1
grep -qF "; going on from unnamed/checkpoints/step-000000002.h5" err || { code=0; fail "no word on the damaged one"; }
grep -qF "resumed from unnamed/checkpoints/step-000000002.h5" out || { code=0; fail "not resumed from the whole one"; }
[ "$(cksum <"$newest.damaged")" = "$sum" ] || { code=0; fail "the damaged checkpoint is not set aside as it was"; }
"$program" checkpoint verify "$newest" >out 2>err || { code=$?; fail "the checkpoint written anew"; }
rm unnamed/checkpoints/step-*.h5 unnamed/checkpoints/latest
refused 65 "all checkpoints of unnamed/checkpoints were found to be damaged" --resume auto --run-dir unnamed
refused 64 "--resume latest looks for a checkpoint in this run's folder" --resume latest
refused 64 "--depth is 3, the checkpoint's is 2" --resume run --depth 3
refused 64 "--embed-dim is 64, the checkpoint's is 32" --resume run --embed-dim 64
refused 64 "--seed is 9, the checkpoint's is 1" --resume run --seed 9
refused 64 "the training data have 20 samples in use, the checkpoint's had 16" --resume run --generated-samples 20
refused 73 "cannot use 'run' as run folder: it holds " --run-dir run
refused 73 "the folder run/checkpoints holds checkpoints of another run (step-000000002.h5)" --run-dir other \
  --checkpoint-dir run/checkpoints
[ -s "$good" ] || { code=0; fail "the checkpoint of another run is gone"; }

# A node whose folder is another one: found out before the first step.
if [ "$ranks" -gt 1 ]; then
  printf '#!/bin/sh\n[ "${OMPI_COMM_WORLD_RANK:-$PMI_RANK}" != 1 ] || { mkdir -p node && cd node; }\nexec "$@"\n' >elsewhere
  chmod +x elsewhere
  expect 73 "all nodes must share the folder" "${launcher[@]}" ./elsewhere "$program" --run-dir unshared
fi
refused 64 "--preempt-signal: there is no signal 'KILL' to stop at; allowed: USR1, USR2, TERM, INT" --preempt-signal KILL
refused 73 "cannot make the folder run/config.yaml/checkpoints" --checkpoint-dir run/config.yaml/checkpoints

echo "$count bad checkpoints on $ranks ranks, $failures failures"
[ "$failures" -eq 0 ]
