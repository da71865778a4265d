#!/usr/bin/env bash
# Starts that fail, at each stage of a start, and then the corrected command with the same --run-dir, which must work:
# what was made by a start that never did a step is in nobody's way, and a folder that it did not make stays.
#
#   failed_starts.sh PROGRAM SHIM RANKS [LAUNCHER WORDS...]   (which end with the option that takes the number of ranks)
#
# SHIM is the library of tests/support/failing_calls.c.
set -u
program=$1 shim=$2 ranks=$3
shift 3
launcher=("$@")
[ ${#launcher[@]} -gt 0 ] && launcher+=("$ranks")

. "$(dirname "${BASH_SOURCE[0]}")/expect.sh"

export VIT_HYBRID_DEPTH=1 VIT_HYBRID_EMBED_DIM=32 VIT_HYBRID_STEPS=2 VIT_HYBRID_GLOBAL_BATCH_SIZE=8 \
  VIT_HYBRID_IMAGE_SIZE=32x64 VIT_HYBRID_PATCH_SIZE=4 VIT_HYBRID_IN_CHANNELS=8 VIT_HYBRID_NUM_HEADS=4
builtin=(--generated-samples 16 --generated-valid-samples 0)

run() { timeout -k 5 "$LIMIT" "${launcher[@]}" "$program" "$@" >out 2>err; }

# refused CODE TEXT OPTIONS...
refused() {
  local want=$1 text=$2
  shift 2
  expect "$want" "$text" "${launcher[@]}" "$program" "$@"
}

# killed_at FAULT OPTIONS...: by the library, as VIT_HYBRID_TEST_FAULT says
killed_at() {
  count=$((count + 1))
  local fault=$1
  shift
  VIT_HYBRID_TEST_FAULT=$fault timeout -k 5 "$LIMIT" "${launcher[@]}" ./killed "$shim" "$program" "$@" >out 2>err
  code=$?
  [ $code = 137 ] || [ $code = 9 ] || fail "the run was not killed: $fault"  # 9: MPICH's launcher
}

# corrected NAME OPTIONS...: the command that works, in the folder in which another one failed
corrected() {
  local name=$1
  shift
  count=$((count + 1))
  run "$@" --run-dir "$name"
  code=$?
  [ $code = 0 ] && [ -s "$name/summary.json" ] && [ "$(grep -c '"kind":"start"' "$name/metrics.jsonl")" = 1 ] &&
    [ ! -e "$name/config-2.yaml" ] || fail "the corrected command after: $name"
}

# fails CODE TEXT NAME OPTIONS...: nothing is left of it; then the same where the folder was there, which stays
fails() {
  local want=$1 text=$2 name=$3
  shift 3
  refused "$want" "$text" "$@" --run-dir "runs/$name"
  [ ! -e runs ] || { code=0; fail "$name: the failed start leaves $(find runs | head -n 3 | tr '\n' ' ')"; }
  rm -rf runs
  mkdir -p "old/$name"
  refused "$want" "$text" "$@" --run-dir "old/$name"
  [ -d "old/$name" ] || { code=0; fail "$name: a folder that was there is gone"; }
}

run "${builtin[@]}" --run-dir good || { code=$?; fail "the run itself"; exit 1; }
"$program" data generate --out data --train-years 1 --steps-per-year 20 >out 2>err ||
  { code=$?; fail "the data"; exit 1; }

fails 64 "--depht" options "${builtin[@]}" --depht 2
corrected old/options "${builtin[@]}"
fails 64 "--dp 7 x --tp 3 x --pp 1 is 21" degrees "${builtin[@]}" --dp 7 --tp 3
corrected old/degrees "${builtin[@]}"
fails 66 "nowhere is not there" missing "${builtin[@]}" --init-from nowhere
corrected old/missing "${builtin[@]}"
data=(--valid-data data/valid --stats data/stats)
mkdir garbage && head -c 5000 /dev/urandom >garbage/1990.h5
fails 65 "garbage/1990.h5" garbage --train-data garbage "${data[@]}"
corrected old/garbage --train-data data/train "${data[@]}"
mkdir pipe && mkfifo pipe/1990.h5
fails 65 "pipe/1990.h5 is a FIFO" pipe --train-data pipe "${data[@]}"
corrected old/pipe --train-data data/train "${data[@]}"
cp -r data/stats stats && rm stats/global_means.npy && mkfifo stats/global_means.npy
fails 65 "stats/global_means.npy is a FIFO" stats --train-data data/train --valid-data data/valid --stats stats
corrected old/stats --train-data data/train "${data[@]}"
fails 66 "nowhere.h5" resume "${builtin[@]}" --resume nowhere.h5
corrected old/resume "${builtin[@]}"
fails 64 "--seed is 9, the checkpoint's is 1" other "${builtin[@]}" --resume good --seed 9
corrected old/other "${builtin[@]}"
fails 64 "--init-from" initial "${builtin[@]}" --init-from good --embed-dim 64
corrected old/initial "${builtin[@]}"
fails 73 "holds checkpoints of another run" foreign "${builtin[@]}" --checkpoint-dir good/checkpoints
corrected old/foreign "${builtin[@]}"
cp -r good flipped
offset=$(($(stat -c %s flipped/checkpoints/step-000000002.h5) - 1000))
printf 'damaged!' | dd of=flipped/checkpoints/step-000000002.h5 bs=1 seek=$offset conv=notrunc status=none
fails 65 "checksum" damaged "${builtin[@]}" --steps 4 --resume flipped
corrected old/damaged "${builtin[@]}"

# Ended by force: before the first file, and when all files were there but no step was done.
cat >killed <<'END'
#!/bin/sh
asan=$(ldd "$2" | awk '$1 ~ /^libasan/ { print $3 }')
shim=$1
shift
LD_PRELOAD="${asan:+$asan:}$shim${LD_PRELOAD:+:$LD_PRELOAD}" exec "$@"
END
chmod +x killed
killed_at "0 create 1 0" "${builtin[@]}" --run-dir killed-early
[ -e killed-early/run.lock ] || { code=0; fail "a killed run leaves no lock"; }
corrected killed-early "${builtin[@]}"
killed_at "0 create 2 0" "${builtin[@]}" --checkpoint-at-start --run-dir killed-late
[ -s killed-late/metrics.jsonl ] && [ -s killed-late/config.yaml ] || { code=0; fail "killed too early"; }
corrected killed-late "${builtin[@]}"
grep -q 'holds what a start left that never did a step: it is used anew' out ||
  { code=0; fail "no word on what was left"; }

# What is a run's, or nobody's that is known, stays as it is.
refused 73 "cannot use 'good' as run folder: it holds " "${builtin[@]}" --run-dir good
mkdir mine && echo mine >mine/config.yaml
refused 73 "cannot use 'mine' as run folder: it holds 'config.yaml'" "${builtin[@]}" --run-dir mine
[ "$(cat mine/config.yaml)" = mine ] || { code=0; fail "a foreign file was changed"; }

# FIFOs in the place of a run's files: refused at once.
for name in checkpoints/latest checkpoints/best metrics.jsonl; do
  [ ! -e fifo ] || mv fifo "before-${name##*/}"
  cp -r good fifo && rm -f "fifo/$name" && mkfifo "fifo/$name"
  case $name in
    checkpoints/latest) # auto takes the newest that is whole
      refused 65 "fifo/checkpoints/latest is a FIFO" "${builtin[@]}" --resume fifo --run-dir new
      refused 66 "no 'latest' that can be read" "${builtin[@]}" --steps 4 --resume latest \
        --run-dir fifo
      run "${builtin[@]}" --steps 4 --resume auto --run-dir fifo || { code=$?; fail "auto beside a FIFO"; } ;;
    checkpoints/best)
      refused 65 "fifo/checkpoints/best is a FIFO" "${builtin[@]}" --resume fifo/$name \
        --run-dir new
      run "${builtin[@]}" --steps 4 --resume auto --run-dir fifo || { code=$?; fail "auto beside a FIFO"; } ;;
    *) refused 65 "fifo/$name is a FIFO" "${builtin[@]}" --steps 4 --resume auto --run-dir fifo ;;
  esac
done
mkfifo pipe.h5
refused 65 "pipe.h5 is a FIFO" "${builtin[@]}" --resume pipe.h5 --run-dir new
refused 65 "pipe.h5 is a FIFO" "${builtin[@]}" --init-from pipe.h5 --run-dir new
[ ! -e new ] || { code=0; fail "a refused start leaves a folder"; }

echo "$count starts on $ranks ranks, $failures failures"
[ "$failures" -eq 0 ]
