#!/usr/bin/env bash
# Runs the program with bad command lines and configurations, and looks at exit code, message and time.
#
#   bad_command_lines.sh all|main PROGRAM RANKS [LAUNCHER WORDS...]
#
# `main` runs one case of each kind (those of refused_main, and without the launcher those of refused_alone, whose words one
# rank refuses as several do), `all` runs them all. The launcher's words go before the program and end with the option
# that takes the number of ranks, as in "mpirun -q -n". Each case must end within LIMIT seconds, with its exit code, and
# with exactly one message, which comes from one rank, holds the text, and is all that there is on standard error.
set -u
which=$1
program=$2
ranks=$3
shift 3
launcher=("$@")
[ ${#launcher[@]} -gt 0 ] && launcher+=("$ranks")

. "$(dirname "${BASH_SOURCE[0]}")/expect.sh"

# refused_main CODE TEXT OPTIONS...: the program on all ranks
refused_main() {
  local want=$1 text=$2
  shift 2
  expect "$want" "$text" "${launcher[@]}" "$program" "$@"
}

refused_alone() {
  if [ "$which" = all ]; then
    refused_main "$@"
  else
    local want=$1 text=$2
    shift 2
    OMPI_MCA_ess_singleton_isolated=1 expect "$want" "$text" "$program" "$@"
  fi
}

refused() {
  if [ "$which" = all ]; then
    refused_main "$@"
  fi
}

printf 'base: &base\n  embed_dim: 64\n  num_heads: 4\nbad_key:\n  <<: *base\n  embed_dims: 64\nbad_value:\n  depth: many\n' >c.yaml
printf 'lr: 1\nlr: 2\n' >twice.yaml
printf 'lr: [1\n' >broken.yaml
printf '\x89HDF\r\n' >binary.yaml
{
  echo 'b0: &b0 {lr: 1}'
  for i in 1 2 3 4 5 6 7 8 9; do
    a=*b$((i - 1))
    printf 'b%d: &b%d\n  <<: [%s, %s, %s, %s, %s, %s, %s, %s, %s, %s]\n' $i $i "$a" "$a" "$a" "$a" "$a" "$a" "$a" "$a" "$a" "$a"
  done
} >bomb.yaml
head -c 2000000 /dev/zero | tr '\0' '#' >long.yaml
{ echo "data: x" && seq -f 'key%.0f: 1' 30000; } >unknown.yaml
printf '"a\\e[31mb\\n c": 1\n' >controls.yaml
mkfifo fifo
mkdir used empty
echo mine >used/metrics.jsonl

# Words and names.
refused_main 64 "unknown option '--emded-dim'; did you mean '--embed-dim'?" --emded-dim 64
refused 64 "unknown option '--embed'; did you mean '--embed-dim'?" --embed 64
refused 64 "unknown option '--learning-rate'; did you mean '--lr'?" --learning-rate 1
refused 64 "unknown option '--batch-size'; did you mean '--global-batch-size'?" --batch-size 1
refused 64 "unknown option '--num-epochs'; did you mean '--epochs'?" --num-epochs 1
refused 64 "--checkpoint must be given" evaluate --bf16
refused 64 "--micro-batch-size is 99; a replica has at most " --fp16 --micro-batch-size 99
refused 64 "unknown option '--any'; the command has no options" checkpoint verify --any
refused 64 "unknown command 'trian'" trian
refused 64 "unknown command 'data'; known are " data
refused 64 "stray word 'short'" --config c.yaml:base short
refused 64 "option '--lr' needs a value" --lr
refused 64 "'steps' is '0'; allowed: " --num-iters=2 --steps 0
refused 64 "--warmup is 21, longer than the run of 20 iterations" --steps 20 --warmup 21
refused 64 "--warmup is 65, longer than the run of 64 iterations" --epochs 2 --warmup 65
refused 64 "--drop-last leaves no step: an epoch has 5 samples" --print-lr --epochs 2 --drop-last --generated-samples 5
refused 64 "--print-lr opens no data, and --epochs needs" --print-lr --data hdf5 --train-data x --stats x --epochs 3
refused 64 "--load $work and --resume $work both say" --load "$work" --resume "$work"
refused 64 "--local-batch-size 3 x --dp $ranks is $((3 * ranks)), and --global-batch-size is 1000; keep one" \
  --local-batch-size 3 --global-batch-size 1000

# Values: each with what is allowed.
refused 64 "'lr' is 'nan'; allowed: number, more than 0" --lr nan
refused 64 "'seed' is '-1'; allowed: integer, at least 0" --seed -1
refused 64 "'precision' is 'fp8'; allowed: fp32, fp64, tf32, bf16, fp16" --precision fp8
refused 64 "'gelu' is 'relu'; allowed: erf, tanh" --gelu relu
refused 64 "--cuda-graph on: the device is the CPU" --device cpu --cuda-graph on --steps 1
refused 64 "'ranks-per-gpu' is '0'; allowed: integer, 1 to " --ranks-per-gpu 0
refused 64 "'pin-memory' is 'yes'; allowed: auto, on, off" --pin-memory yes
refused 64 "--pin-memory on page-locks batches for copies to a GPU" --pin-memory on --device cpu
refused 64 "--train-data '$work' is given, and --data builtin makes its data in memory" --data builtin --train-data "$work"
refused 64 "--stage-dir '$work' is where --stage-data node puts its copies" --stage-dir "$work"
refused_alone 64 "--threads is 4096; allowed: 1 to " --threads 4096
refused_alone 64 "'depth' is '16777216'; allowed: integer, 1 to 10000" --depth 16777216
refused_main 64 "this run takes at least " --depth 10000 --embed-dim 16384 --num-heads $((4 * ranks))
refused 64 "this run takes at least " --embed-dim 16777216 --num-heads $((4 * ranks))
refused 64 "this run takes at least " --image-size 16777216
refused 64 "this run takes at least " --generated-samples 99999999999
refused 64 "micro-batches of a replica's" --global-batch-size 99999999999 --micro-batch-size 1
refused 64 "num_heads is 3, which does not divide embed_dim 128" --num-heads 3
refused 64 "pipeline degree (--pp) is 99, more than the 6 layer units" --pp 99
refused 64 "--dp 7 x --tp 1 x --pp 1 is 7, but there " --dp 7
refused 64 "--micro-batch-size is 9999; a replica has at most " --micro-batch-size 9999
refused_main 64 "3 problems in the configuration" --dp 7 --lr=-1 --num-heads 5

# Configurations.
refused_alone 64 "c.yaml:6: unknown key 'embed_dims'; did you mean 'embed-dim'?" --config c.yaml:bad_key --data synthetic
refused 64 "c.yaml:8: 'depth' is 'many'; allowed: integer, 1 to " --config c.yaml:bad_value --data synthetic
refused 64 "there is no section 'bas'; it has base, bad_key, bad_value" --config c.yaml:bas
refused 64 "twice.yaml:2: key 'lr' is given twice" --config twice.yaml
refused_main 65 "broken.yaml:" --config broken.yaml
refused 65 "binary.yaml" --config binary.yaml
refused_main 66 "/nowhere/c.yaml is not there" --config /nowhere/c.yaml:base
refused 66 "$work/empty is a folder, a file is needed" --config "$work/empty"
refused 65 "/dev/zero is a device, a file is needed" --config /dev/zero
refused_main 65 "$work/fifo is a FIFO, a file is needed" --config "$work/fifo"
refused 65 "long.yaml has more than 1048576 bytes, the most that it may have" --config long.yaml
refused_alone 65 "aliases and merge keys repeat the file has more than 100000 values" --config bomb.yaml:b9
refused_alone 64 "30001 problems in the configuration" --config unknown.yaml
refused 64 "and 29981 more" --config unknown.yaml
refused 64 "unknown key 'a\\x1b[31mb\\n c'" --config controls.yaml --data synthetic
refused_alone 66 "--train-data '/nowhere' does not exist" --train-data /nowhere --stats "$work"

# Run folders. A file is no folder for any user, root included.
refused_main 73 "cannot use '$work/used' as run folder: it holds 'metrics.jsonl'" --run-dir "$work/used" --steps 1
refused_alone 73 "cannot make the folder $work/c.yaml/run: '$work/c.yaml' is no folder" --run-dir "$work/c.yaml/run" --steps 1

# The environment.
VIT_HYBRID_LRR=1 refused 64 "environment VIT_HYBRID_LRR: unknown option 'lrr'; did you mean 'lr'?"
VIT_HYBRID_FP16=maybe refused 64 "environment VIT_HYBRID_FP16: 'fp16' is 'maybe'; allowed: true, false"
VIT_HYBRID_DEPTH=-1 refused_main 64 "environment VIT_HYBRID_DEPTH: 'depth' is '-1'" --steps 1

# The other command.
refused_alone 64 "'ranks' is '0'; allowed: auto, or an integer 1 to 1048576" plan --ranks 0
refused 64 "'memory-gib' is '-1'; allowed: auto, or a number more than 0" plan --memory-gib -1
refused 64 "--tp 2 x --pp 1 is 2, but there are 13 ranks" plan --ranks 13 --tp 2
refused 64 "no layout of 100000 ranks is valid; the first one, --dp 100000 --tp 1 --pp 1: --global-batch-size is 16, fewer" plan --ranks 100000
printf 'fields:\n  task: classify\n' >no_data.yaml
refused 64 "vit_hybrid: no training data is given; give --train-data PATH" plan --config no_data.yaml:fields --ranks 16
refused 64 "stray word 'x'" plan x
refused 64 "a rank of this training takes at least 256 TiB" plan --dp 1 --image-size 16777216 --patch-size 8 --data synthetic
refused_alone 64 "--out FOLDER must be given" data generate
refused 64 "'channels' is '0'; allowed: integer or names, 1 to 256" data generate --out "$work/generated" --channels 0
refused 64 "--channels has 'zz500', which the waves do not make; the nearest variable is 'z'" \
  data generate --out "$work/generated" --weather waves --channels u10,zz500
refused 64 "channels are 'u10'; shallow water takes a number of them" data generate --out "$work/generated" --channels u10
refused 64 "'weather' is 'rain'; allowed: shallow-water, waves" data generate --out "$work/generated" --weather rain
refused 64 "unknown option '--lr'" data generate --out "$work/generated" --lr 1

# The tools for data files.
refused_alone 64 "no file is given: vit_hybrid data inspect FILE..." data inspect
refused_alone 66 "/nowhere/x.h5 is not there" data inspect /nowhere/x.h5
refused 65 "c.yaml cannot be opened as an HDF5 file" data inspect c.yaml
refused 66 'x\x1b[31m\u202e.h5 is not there' data inspect $'x\e[31m\u202e.h5'
refused 64 "'sample' is '0'; allowed: integer, 1 to 1000000000" data inspect c.yaml --sample 0
refused 64 "--out FOLDER must be given" data repack c.yaml
refused 64 "'dtype' is 'fp8'; allowed: keep, fp32, bf16, fp16" data repack c.yaml --out "$work/x" --dtype fp8
refused_alone 65 "c.yaml cannot be opened as an HDF5 file" data repack c.yaml --out "$work/repacked"
refused_alone 64 "2 problems in the configuration" data stats
refused 64 "'climatology-days' is '60'; allowed: odd numbers" \
  data stats "$work/empty" --out "$work/stats" --climatology --climatology-days 60
refused 64 "'climatology-days' is '367'; allowed: integer, 1 to 365" \
  data stats "$work/empty" --out "$work/stats" --climatology-days 367
refused 66 "holds no file *.h5" data stats "$work/empty" --out "$work/stats"

# The use of a trained model.
refused_alone 64 "--checkpoint must be given" evaluate
refused 64 "3 problems in the configuration" forecast
refused 64 "'steps' is '0'; allowed: integer, at least 1" forecast --steps 0
refused 64 "unknown option '--lr'" evaluate --lr 1
refused_main 66 "/nowhere is not there" evaluate --checkpoint /nowhere --data "$work"
refused 65 "c.yaml" forecast --checkpoint "$work/c.yaml" --data "$work" --out f.h5
refused 64 "--init-from starts a new training and --resume $work" --init-from "$work" --resume "$work"
refused 64 "--init-from-partial is given without --init-from" --init-from-partial
refused_alone 66 "/nowhere" --init-from /nowhere --steps 1 --run-dir "$work/never"

# Ranks that were started differently.
if [ "$ranks" -gt 1 ]; then
  expect 64 "the ranks disagree on the command line" \
    "${launcher[@]:0:${#launcher[@]}-1}" 1 "$program" --seed 1 : \
    "${launcher[@]: -2:1}" $((ranks - 1)) "$program" --seed 2
fi

echo "$count bad command lines on $ranks ranks, $failures failures"
[ "$failures" -eq 0 ]
