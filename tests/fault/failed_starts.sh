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

export VIT_HYBRID_DEPTH=1 VIT_HYBRID_EMBED_DIM=32 VIT_HYBRID_STEPS=2 VIT_HYBRID_GLOBAL_BATCH_SIZE=8
builtin=(--generated-samples 16 --generated-valid-samples 0)

run() { timeout -k 5 "$LIMIT" "${launcher[@]}" "$program" "$@" >out 2>err; }

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
  expect "$want" "$text" "${launcher[@]}" "$program" "$@" --run-dir "runs/$name"
  [ ! -e runs ] || { code=0; fail "$name: the failed start leaves $(find runs | head -n 3 | tr '\n' ' ')"; rm -rf runs; }
  mkdir -p "old/$name"
  expect "$want" "$text" "${launcher[@]}" "$program" "$@" --run-dir "old/$name"
  [ -d "old/$name" ] || { code=0; fail "$name: a folder that was there is gone"; }
}

run "${builtin[@]}" --run-dir good || { code=$?; fail "the run itself"; exit 1; }

fails 64 "--depht" options "${builtin[@]}" --depht 2
corrected old/options "${builtin[@]}"
fails 64 "do not multiply" degrees "${builtin[@]}" --dp 7 --tp 3
corrected old/degrees "${builtin[@]}"
fails 66 "nowhere" missing --train-data nowhere
corrected old/missing "${builtin[@]}"
mkdir garbage && head -c 5000 /dev/urandom >garbage/1990.h5
fails 65 "garbage/1990.h5" garbage --train-data garbage --stats none
corrected old/garbage "${builtin[@]}"
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
count=$((count + 1))
VIT_HYBRID_TEST_FAULT="0 create 1 0" timeout -k 5 "$LIMIT" "${launcher[@]}" ./killed "$shim" "$program" "${builtin[@]}" \
  --run-dir killed-early >out 2>err && { code=0; fail "the run was not killed"; }
[ -e killed-early/run.lock ] || { code=0; fail "a killed run leaves no lock"; }
corrected killed-early "${builtin[@]}"
count=$((count + 1))
VIT_HYBRID_TEST_FAULT="0 create 2 0" timeout -k 5 "$LIMIT" "${launcher[@]}" ./killed "$shim" "$program" "${builtin[@]}" \
  --checkpoint-at-start --run-dir killed-late >out 2>err && { code=0; fail "the run was not killed"; }
[ -s killed-late/metrics.jsonl ] && [ -s killed-late/config.yaml ] || { code=0; fail "killed too early"; }
corrected killed-late "${builtin[@]}"
grep -q 'holds what a start left that never did a step: it is used anew' out || { code=0; fail "no word on what was left"; }

# What is a run's, or nobody's that is known, stays as it is.
expect 73 "cannot use 'good' as run folder: it holds " "${launcher[@]}" "$program" "${builtin[@]}" --run-dir good
mkdir mine && echo mine >mine/config.yaml
expect 73 "cannot use 'mine' as run folder: it holds 'config.yaml'" "${launcher[@]}" "$program" "${builtin[@]}" --run-dir mine
[ "$(cat mine/config.yaml)" = mine ] || { code=0; fail "a foreign file was changed"; }

# FIFOs in the place of a run's files: refused at once.
for name in checkpoints/latest checkpoints/best metrics.jsonl; do
  rm -rf fifo && cp -r good fifo && rm -f "fifo/$name" && mkfifo "fifo/$name"
  case $name in
    checkpoints/latest) # auto takes the newest that is whole
      expect 65 "fifo/checkpoints/latest is a FIFO" "${launcher[@]}" "$program" "${builtin[@]}" --resume fifo --run-dir new
      expect 66 "no 'latest' that can be read" "${launcher[@]}" "$program" "${builtin[@]}" --steps 4 --resume latest \
        --run-dir fifo
      run "${builtin[@]}" --steps 4 --resume auto --run-dir fifo || { code=$?; fail "auto beside a FIFO"; } ;;
    checkpoints/best)
      expect 65 "fifo/checkpoints/best is a FIFO" "${launcher[@]}" "$program" "${builtin[@]}" --resume fifo/$name \
        --run-dir new
      run "${builtin[@]}" --steps 4 --resume auto --run-dir fifo || { code=$?; fail "auto beside a FIFO"; } ;;
    *) expect 65 "fifo/$name is a FIFO" "${launcher[@]}" "$program" "${builtin[@]}" --steps 4 --resume auto --run-dir fifo ;;
  esac
done
mkfifo pipe.h5
expect 65 "pipe.h5 is a FIFO" "${launcher[@]}" "$program" "${builtin[@]}" --resume pipe.h5 --run-dir new
expect 65 "pipe.h5 is a FIFO" "${launcher[@]}" "$program" "${builtin[@]}" --init-from pipe.h5 --run-dir new
[ ! -e new ] || { code=0; fail "a refused start leaves a folder"; }

echo "$count starts on $ranks ranks, $failures failures"
[ "$failures" -eq 0 ]
