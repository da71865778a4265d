#!/usr/bin/env bash
# What a machine and its users do to a program: full and read-only disks, no shared memory, a limit on the size of files,
# a run folder that goes away, outputs on top of inputs, names that are too long. Every time one line with its code, what
# was there stays as it was, and nothing half written is left.
#
#   rough_world.sh PROGRAM RANKS [LAUNCHER WORDS...]   (which end with the option that takes the number of ranks)
set -u
program=$1 ranks=$2
shift 2
launcher=("$@")
[ ${#launcher[@]} -gt 0 ] && launcher+=("$ranks")

. "$(dirname "${BASH_SOURCE[0]}")/expect.sh"

export VIT_HYBRID_TIMEOUT=20
model=(--depth 1 --embed-dim 32 --num-heads 4 --patch-size 4 --global-batch-size 8 --steps 2)
builtin=("${model[@]}" --generated-samples 16 --generated-valid-samples 0)
# A forecast is one trajectory.
layout=()
[ "$ranks" = 1 ] || layout=(--tp "$ranks")

# refused CODE TEXT OPTIONS...
refused() {
  local want=$1 text=$2
  shift 2
  expect "$want" "$text" "${launcher[@]}" "$program" "$@"
}

# works OPTIONS...
works() {
  count=$((count + 1))
  timeout -k 5 "$LIMIT" "${launcher[@]}" "$program" "$@" >out 2>err
  code=$?
  [ $code = 0 ] && [ ! -s err ] || fail "it does not work: $*"
}

wrong() {
  code=0
  fail "$1"
}

# A namespace of mounts of our own, where the system lets us have one.
namespace=()
for words in "unshare -m" "unshare -rm"; do
  if [ ${#namespace[@]} = 0 ] && $words sh -c 'mkdir -p m && mount -t tmpfs none m' 2>err; then namespace=($words); fi
done

# with_disk MOUNT_OPTIONS PREPARE CODE TEXT OPTIONS...: on a file system of its own, `disk`, after the commands PREPARE
# there. What is left in it afterwards is an error.
with_disk() {
  local mount_options=$1 prepare=$2
  shift 2
  [ ${#namespace[@]} -gt 0 ] || return
  cat >in_disk <<'END'
mkdir -p disk && mount -t tmpfs -o size=200k none disk && (cd disk && eval "$2") && mount -o "remount,$1" disk || exit 99
find disk >before
shift 2
"$@"
code=$?
find disk | diff before - >changed
exit $code
END
  local want=$1 text=$2
  shift 2
  : >changed
  expect "$want" "$text" "${namespace[@]}" bash in_disk "$mount_options" "$prepare" "${launcher[@]}" "$program" "$@"
  [ ! -s changed ] || wrong "left on the disk: $(tr '\n' ' ' <changed)"
}

# kept FILE CODE TEXT OPTIONS...: the command is refused, and the file has its bytes
kept() {
  local file=$1
  cp "$file" copy
  shift
  refused "$@"
  cmp -s "$file" copy || wrong "$file is not what it was"
  cp copy "$file"
}

"$program" data generate --out data --train-years 1 --valid-years 1 --steps-per-year 9 --sample-interval-hours 6 \
  >out 2>err && "$program" data generate images --out images --train-images 16 --valid-images 8 --size 16 --classes 3 \
  >out 2>err || { code=$?; fail "the data"; exit 1; }
fields=(--train-data data/train --valid-data data/valid --stats data/stats)
works "${model[@]}" "${fields[@]}" "${layout[@]}" --run-dir forecaster
works "${model[@]}" --task classify --train-data images/train.h5 --run-dir classifier
checkpoint=forecaster/checkpoints/step-000000002.h5
evaluate=(evaluate --checkpoint classifier --data images/valid.h5)
forecast=(forecast --checkpoint forecaster --data data/valid --steps 2 "${layout[@]}")

# --- disks that are full, or may not be written to
fill="head -c 300k /dev/zero >fill 2>/dev/null; true"
[ "$ranks" -gt 1 ] || with_disk rw true 73 "two checkpoints of" "${builtin[@]}" --run-dir disk/run
with_disk rw "$fill" 73 "No space left on device" "${builtin[@]}" --run-dir disk/run
with_disk rw true 73 "but disk/d has room for" data generate --out disk/d --train-years 1 --steps-per-year 20
with_disk rw "mkdir d" 73 "but disk/d has room for" data repack data/train --out disk/d
with_disk rw "$fill" 74 "No space left on device" "${evaluate[@]}" --predictions disk/p.csv
with_disk ro true 73 "Read-only file system" "${builtin[@]}" --run-dir disk/run
with_disk ro true 73 "Read-only file system" "${forecast[@]}" --out disk/f.h5
if [ "$ranks" = 1 ]; then
  with_disk ro "mkdir run" 73 "Read-only file system" "${builtin[@]}" --run-dir disk/run
  with_disk ro true 73 "nothing can be written into the folder 'disk'" "${evaluate[@]}" --predictions disk/p.csv
fi

# --- full shared memory: the ranks of a node meet elsewhere (MPICH does not: its MPI_Init ends the program)
if "$program" --version | grep -q MPICH; then
  echo "[skipped] full shared memory: MPICH does not start there"
elif [ ${#namespace[@]} -gt 0 ]; then
  cat >full_memory <<'END'
mount -t tmpfs -o size=64k none /dev/shm || exit 99
head -c 100k /dev/zero >/dev/shm/fill 2>/dev/null
"$@"
code=$?
[ "$(ls /dev/shm)" = fill ] || { echo "left: $(ls /dev/shm)" >&2; exit 98; }
exit $code
END
  count=$((count + 1))
  timeout -k 5 "$LIMIT" "${namespace[@]}" bash full_memory "${launcher[@]}" "$program" data stats data/train \
    --out full-memory >out 2>err
  code=$?
  [ $code = 0 ] && [ -s full-memory/global_stds.npy ] || fail "full shared memory"
  [ "$ranks" = 1 ] || [ "$(grep -c 'warning: a node of .* free in /dev/shm, where .* needed' err)" = 1 ] ||
    fail "full shared memory, and nobody says so"
fi

# --- a limit on the size of files, of one rank: its gradients are in none, which no other rank can map, and all is said
if [ "$ranks" = 2 ]; then
  printf '#!/bin/sh\n[ "${OMPI_COMM_WORLD_RANK:-$PMI_RANK}" != 1 ] || ulimit -f 32000\nexec "$@"\n' >limited
  chmod +x limited
  expect 0 "File too large; what ranks add up goes through /dev/shm" "${launcher[@]}" ./limited "$program" "${builtin[@]}" \
    --embed-dim 768 --dp 2 --test-steps 2 --run-dir limited-run
fi

# --- outputs on top of inputs, also with --overwrite and by way of links
ln -s valid.h5 images/link.h5
kept images/valid.h5 64 "images/valid.h5" "${evaluate[@]}" --predictions images/valid.h5 --overwrite
kept images/valid.h5 64 "images/link.h5" "${evaluate[@]}" --predictions images/link.h5 --overwrite
kept data/valid/1991.h5 64 "data/valid/1991.h5" "${forecast[@]}" --out data/valid/1991.h5 --overwrite
kept $checkpoint 64 "$checkpoint" "${forecast[@]}" --out $checkpoint --overwrite
kept data/train/1990.h5 64 "is the folder of" data repack data/train --out data/train --overwrite
cp $checkpoint alone.h5
count=$((count + 1))
"$program" checkpoint export alone.h5 --out alone.h5 --names timm --overwrite >out 2>err
code=$?
[ $code = 64 ] && cmp -s $checkpoint alone.h5 || fail "an export replaces its checkpoint"

# What is alike on any number of ranks.
if [ "$ranks" = 1 ]; then
  # --- a limit on the size of files: an error of writing, no signal that ends the process
  count=$((count + 1))
  (ulimit -f 100 && exec "$program" checkpoint export $checkpoint --out limited.safetensors --names timm) >out 2>err
  code=$?
  [ $code = 74 ] && grep -q "^vit_hybrid: .*File too large" err || fail "a limit on the size of files"
  [ ! -e limited.safetensors ] || wrong "a damaged file has its name"
  ! ls limited.safetensors.*partial >/dev/null 2>&1 || wrong "half a file is left"

  # --- what is printed and cannot be: the code says so
  for words in --help --print-config "checkpoint inspect $checkpoint"; do
    count=$((count + 1))
    "$program" $words >/dev/full 2>err
    code=$?
    [ $code = 74 ] && [ "$(grep -c '^vit_hybrid: ' err)" = 1 ] || fail "nothing is said of a lost output: $words"
  done

  # --- outputs that are no files: nothing is computed for them, and they stay what they are
  mkdir folder.csv folder.h5 && mkfifo pipe.csv
  refused 73 "folder.csv" "${evaluate[@]}" --predictions folder.csv --overwrite
  refused 73 "folder.h5" "${forecast[@]}" --out folder.h5 --overwrite
  refused 73 "pipe.csv" "${evaluate[@]}" --predictions pipe.csv --overwrite
  [ -p pipe.csv ] && [ -d folder.h5 ] || wrong "a pipe or folder was replaced"

  # --- names that no file system takes
  long=$(printf 'n%.0s' {1..300})
  refused 73 "File name too long" "${builtin[@]}" --run-dir "$long"
  refused 73 "File name too long" "${evaluate[@]}" --predictions "$long.csv"
  refused 73 "File name too long" data stats data/train --out "$long"
  refused 66 "File name too long" data stats "$long" --out new

  # --- links in the place of unfinished files are not followed
  echo kept >victim
  mkdir linked && ln -s ../victim linked/1990.h5.partial && ln -s ../victim linked/global_means.npy.partial
  works data repack data/train --out linked
  works data stats data/train --out linked
  [ "$(cat victim)" = kept ] || wrong "a link was followed"
fi

# --- a run folder that goes away: the run ends at once, and makes no new one
count=$((count + 1))
timeout -k 5 "$LIMIT" "${launcher[@]}" "$program" "${builtin[@]}" --steps 100000 --lock-renewal 1 --run-dir gone \
  >out 2>err &
running=$!
for _ in {1..300}; do
  grep -qs '"kind":"step"' gone/metrics.jsonl && break
  sleep 0.1
done
mv gone elsewhere
wait $running
code=$?
[ $code = 73 ] && grep -q "^vit_hybrid: .*lost this job's lock" err || fail "the run folder is gone"
[ ! -e gone ] || wrong "a run made its folder again"

[ ${#namespace[@]} -gt 0 ] || echo "without the disks and the shared memory: there is no namespace of mounts"
echo "$count cases on $ranks ranks, $failures failures"
[ "$failures" -eq 0 ]
