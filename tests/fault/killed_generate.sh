#!/usr/bin/env bash
# Kills `data generate` around its calls of the system, in the order in which it makes them, and checks that nothing is
# left that `data stats` takes for whole and is not; and that the same command, given again, makes the whole of it.
#
#   killed_generate.sh some|all PROGRAM SHIM RANKS [LAUNCHER...]   (whose last word takes the number of ranks)
#
# SHIM is the library of tests/support/failing_calls.c, which looks at files below "/checkpoints".
set -u
which=$1 program=$2 shim=$3 ranks=$4
shift 4
launcher=("$@")
[ ${#launcher[@]} -gt 0 ] && launcher+=("$ranks")

faulty=$(realpath "$(dirname "${BASH_SOURCE[0]}")/faulty.sh")
. "$(dirname "${BASH_SOURCE[0]}")/expect.sh"


channels=t2m,z:500:850
# generate FORMAT FAULT: into ./checkpoints; the exit code is in `code`
generate() {
  {  # the shell says of what was killed that it was
    timeout -k 5 "$LIMIT" "${launcher[@]}" "$faulty" "$2" "$shim" "$program" data generate --out ./checkpoints/era \
      --weather waves --format "$1" --channels $channels --train-years 1 --valid-years 0 --steps-per-year 3 --height 8 \
      --width 8 >out 2>err
    code=$?
  } 2>/dev/null
}

# stats FORMAT: of what is there
stats() {
  local data=./checkpoints/era/train
  [ "$1" = zarr ] && data=./checkpoints/era/weather.zarr
  rm -rf stats
  timeout -k 5 "$LIMIT" "$program" data stats "$data" --channels $channels --out stats >out2 2>err2
}

for format in zarr netcdf; do
  rm -rf checkpoints whole
  generate $format none
  [ "$code" -eq 0 ] || fail "$format: the run without a fault"
  stats $format || fail "$format: no statistics of the run without a fault"
  mv stats whole
  for call in create write sync rename; do
    step=1 errors="0 -1"
    if [ "$which" = some ]; then
      errors=0
      [ $call = rename ] && step=4 || step=17
    fi
    before=$count
    for rank in $(seq 0 $((ranks - 1))); do  # some calls are rank 0's alone
      for error in $errors; do
        number=1
        while :; do
          rm -rf checkpoints
          fault="$rank $call $number $error"
          generate $format "$fault"
          [ "$code" -eq 0 ] && break  # there is no such call any more
          count=$((count + 1))
          if stats $format; then
            cmp -s stats/global_means.npy whole/global_means.npy || fail "$format, $fault: half of it is taken for whole"
          else
            [ ! -e checkpoints/era/stats/global_means.npy ] || fail "$format, $fault: statistics of nothing"
            generate $format none
            [ "$code" -eq 0 ] || fail "$format, $fault: not again"
            stats $format && cmp -s stats/global_means.npy whole/global_means.npy || fail "$format, $fault: other data again"
          fi
          number=$((number + step))
        done
      done
    done
    [ $call = sync ] || [ $count -gt $before ] || fail "$format: there is no $call"
  done
done

echo "$count kills on $ranks ranks, $failures failures"
[ "$failures" -eq 0 ]
