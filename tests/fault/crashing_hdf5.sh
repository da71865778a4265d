#!/usr/bin/env bash
# Lets the HDF5 library crash on a data file, as 1.10 does on some damaged ones, and looks at exit code, message and
# time: the job must end with one message that names the file.
#
#   crashing_hdf5.sh PROGRAM SHIM RANKS [LAUNCHER WORDS...]   (which end with the option that takes the number of ranks)
#
# With VIT_HYBRID_TEST_LOOP set, HDF5 computes without an end instead, which takes a minute each time.
# SHIM is the library of tests/support/crashing_hdf5.c.
set -u
program=$1 shim=$2 ranks=$3
shift 3
launcher=("$@")
[ ${#launcher[@]} -gt 0 ] && launcher+=("$ranks")

. "$(dirname "${BASH_SOURCE[0]}")/expect.sh"

# The crash is set within, so that the launcher itself does not see it.
cat >crashing <<'END'
#!/bin/sh
crash=$1 shim=$2
shift 2
ASAN_OPTIONS="${ASAN_OPTIONS:+$ASAN_OPTIONS:}verify_asan_link_order=0" VIT_HYBRID_TEST_HDF5_CRASH="$crash" \
  LD_PRELOAD="$shim${LD_PRELOAD:+:$LD_PRELOAD}" exec "$@"
END
chmod +x crashing

# crashes RANKS SIGNAL TEXT OPTIONS...
crashes() {
  local who=$1 signal=$2 text=$3
  shift 3
  expect 65 "$text" "${launcher[@]}" ./crashing "$who $signal" "$shim" "$program" "$@"
}

"$program" data generate --out data --height 8 --width 16 --channels 2 --steps-per-year 4 --train-years 4 \
  --valid-years 1 >out 2>err || { code=$?; fail "no data"; exit 1; }
options=(--train-data data/train --valid-data data/valid --stats data/stats --image-size 8x16 --patch-size 4
  --in-channels 2 --depth 1 --embed-dim 32 --num-heads 4 --global-batch-size 4 --steps 1)

if [ -n "${VIT_HYBRID_TEST_LOOP:-}" ]; then
  LIMIT=100
  endless="its HDF5 structure is damaged: the HDF5 library came to no end with it in 60 s of computing"
  crashes 0 0 "data/train/1990.h5: $endless" "${options[@]}" --run-dir run
  crashes 0 0 "data/train/1991.h5: $endless" data inspect data/train/1991.h5
  echo "$count loops on $ranks ranks, $failures failures"
  exit "$((failures > 0))"
fi

damaged=": its HDF5 structure is damaged: the HDF5 library crashed on it"
for signal in 6 7 8 11; do
  crashes 0 $signal "data/train/1990.h5$damaged" "${options[@]}" --run-dir "run$signal"
done
crashes all 11 "$damaged" "${options[@]}" --run-dir run
crashes 0 11 "data/train/1991.h5$damaged" data inspect data/train/1991.h5
crashes 0 11 "data/train/1991.h5$damaged" data repack data/train/1991.h5 --out repacked

echo "$count crashes on $ranks ranks, $failures failures"
[ "$failures" -eq 0 ]
