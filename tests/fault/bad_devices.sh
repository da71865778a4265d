#!/usr/bin/env bash
# Runs the program where the device cannot do what is wanted, or has not the memory for it, and looks at exit code,
# message and time.
#
#   bad_devices.sh cpu|cuda PROGRAM RANKS [LAUNCHER WORDS...]
#
# `cuda` is the variant of the program with CUDA; what takes a GPU is tried where there is one. The launcher's words are
# as in bad_command_lines.sh.
set -u
variant=$1
program=$(realpath "$2")
ranks=$3
shift 3
launcher=("$@")
[ ${#launcher[@]} -gt 0 ] && launcher+=("$ranks")

. "$(dirname "${BASH_SOURCE[0]}")/expect.sh"

refused() {  # refused TEXT OPTIONS...
  local text=$1
  shift
  expect 64 "$text" "${launcher[@]}" "$program" --steps 1 --run-dir "$work/never" "$@"
}

num_gpus=0
if command -v nvidia-smi >/dev/null; then
  num_gpus=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU ')
fi

if [ "$variant" = cpu ]; then
  refused "--device cuda: this program was built without CUDA; use bin/cuda/vit_hybrid" --device cuda
  # Every rank wants 1.3 GiB for its parameters beside what the libraries map, and may have less than 2. A sanitizer takes
  # far more than that for itself.
  if ldd "$program" | grep -q libasan; then
    echo "[skipped] out of memory: the program has a sanitizer"
  else
    large=(--embed-dim 1536 --depth 12 --num-heads 16)
    text="were asked for parameters on cpu; held are"
    expect 64 "$text" bash -c 'ulimit -v 2000000; exec "$@"' limited \
      "${launcher[@]}" "$program" --steps 1 --run-dir "$work/never" "${large[@]}"
    grep -q 'what makes it hold less: more --tp or --pp (they are 1 and 1)' "$work/err" ||
      fail "no advice"
    # Their stacks alone take more than that; without a trial LibTorch would wait for ever for those that do not start.
    expect 64 "--threads is 64, which takes 126 threads beside the first, but only " \
      bash -c 'ulimit -s 250000 -v 4000000; exec "$@"' limited \
      "${launcher[@]}" "$program" --steps 1 --run-dir "$work/never" --threads 64
  fi
else
  # What no machine has: a GPU that the user hides. On one rank the message has no place.
  export CUDA_VISIBLE_DEVICES=
  refused "has no GPU that this program can use: " --device cuda
  count=$((count + 1))
  "${launcher[@]}" "$program" --steps 1 --run-dir "$work/auto" --depth 1 --embed-dim 32 --generated-samples 16 \
    --generated-valid-samples 0 >/dev/null 2>"$work/err"
  code=$?
  [ $code = 0 ] && grep -q 'warning: the device is the CPU: ' "$work/err" || fail "--device auto says not why it is the CPU"
  unset CUDA_VISIBLE_DEVICES
  if [ "$num_gpus" = 0 ]; then
    echo "[skipped] too few GPUs, and out of their memory: no GPU on this machine"
  else
    if [ "$ranks" -gt "$num_gpus" ]; then
      refused "for its $ranks ranks; start at most $num_gpus there, let them share with --ranks-per-gpu " --device auto
    fi
    share=$(((ranks + num_gpus - 1) / num_gpus))
    refused "out of memory: " --device cuda --ranks-per-gpu $share --embed-dim 16384 --depth 64 --num-heads 16
  fi
fi

echo "$count bad devices on $ranks ranks, $failures failures"
[ "$failures" -eq 0 ]
