#!/usr/bin/env bash
# Checks who includes what: the direction of knowledge between the boxes, and that MPI, HDF5, hwloc, CUDA and NCCL stay
# in the files that may know them. Prints every include that should not be there.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
failures=0

# A box is a folder with the folders below it that are no boxes themselves. What each may include besides itself:
declare -A may_include=(
  [src/base]=""
  [src/kernels]="src/base"
  [parallel/comm]="src/base"
  [parallel/mesh]="src/base parallel/comm"
  [parallel/tensor]="src/base src/kernels parallel/comm parallel/mesh"
  [parallel/pipeline]="src/base parallel/comm parallel/mesh"
  [parallel/zero]="src/base src/kernels parallel/comm parallel/mesh parallel/tensor"
  [model]="src/base src/kernels parallel/comm parallel/mesh parallel/tensor"
  [data]="src/base src/kernels parallel/comm"
)
# The parts of the program: each knows all of the above, and those before it.
known="${!may_include[*]}"
for part in src/config src/machine src/plan src/report src/checkpoint src/train src/infer src/commands src; do
  may_include[$part]=$known
  known+=" $part"
done

box_of() {  # sets `box` to the box of the file, or to nothing
  box=$(dirname "$1")
  while [ "$box" != . ] && [ -z "${may_include[$box]+known}" ]; do
    box=$(dirname "$box")
  done
}

complain() {
  echo "$1: $2"
  failures=$((failures + 1))
}

mapfile -t files < <(find src parallel model data -type f \
  \( -name '*.h' -o -name '*.cpp' -o -name '*.cu' -o -name '*.cuh' -o -name '*.in' \) | sort)

for file in "${files[@]}"; do
  box_of "$file"
  own=$box
  if [ "$own" = . ]; then
    complain "$file" "is in no box that this test knows"
    continue
  fi
  while read -r included; do
    box_of "$included"
    if [ ! -e "$included" ]; then
      complain "$file" "\"$included\" is not a path from the root"
    elif [[ " $own ${may_include[$own]} " != *" $box "* ]]; then
      complain "$file" "$own must not include \"$included\""
    fi
  done < <(sed -n 's/^ *# *include *"\([^"]*\)".*/\1/p' "$file")
done

# confine <what> <pattern of the included header> <pattern of the files that may>
confine() {
  local file
  while read -r file; do
    [[ $file =~ $3 ]] || complain "$file" "$1 may be included in $3 only"
  done < <(printf '%s\0' "${files[@]}" | xargs -0 grep -lE "^ *# *include *[<\"]($2)[>\"]" || true)
}

confine "<mpi.h>" 'mpi\.h' '^parallel/comm/|^data/hdf5/'
confine "<hwloc.h>" 'hwloc[^>"]*\.h' '^src/machine/placement\.cpp$'
confine "<hdf5.h>" 'hdf5[^>"]*\.h|H5[A-Za-z]*\.h' '^data/hdf5/'
device_files='(cuda|cublas|cudnn|nccl)[^/]*$'
confine "a CUDA, cuDNN or NCCL header" \
  'nccl[^>"]*\.h|cuda[^>"]*|cublas[^>"]*|cudnn[^>"]*|[^>"]*/cuda/[^>"]*|nvtx3/[^>"]*' "$device_files"
confine "device code (.cuh)" '[^>"]*\.cuh' '\.cuh?$'
confine "all of LibTorch at once" 'torch/torch\.h|torch/all\.h|torch/extension\.h|ATen/ATen\.h' '^nowhere$'

# Whether CUDA is enabled is visible to the device files only: both variants share all other objects.
while read -r file; do
  [[ $file =~ $device_files ]] || complain "$file" "asks whether CUDA is enabled"
done < <(printf '%s\0' "${files[@]}" | xargs -0 grep -lE '^ *# *if.*ENABLE_CUDA' || true)

# Device code sees plain arrays and the number types of LibTorch, and nothing else of it: it compiles in seconds.
for file in "${files[@]}"; do
  [[ $file =~ \.cuh?$ ]] || continue
  [[ $file =~ $device_files ]] || complain "$file" "device code has 'cuda' in its name"
  while read -r included; do
    complain "$file" "device code must not include <$included>"
  done < <(sed -nE 's/^ *# *include *[<"]((ATen|torch|c10)\/[^>"]*)[>"].*/\1/p' "$file" |
    grep -vxE 'c10/util/(BFloat16|Half)\.h')
done

if [ "${#files[@]}" -lt 20 ]; then
  complain "tests/build/check_includes.sh" "found only ${#files[@]} files: the folders have moved"
fi
echo "${#files[@]} files, $failures includes that should not be there"
[ "$failures" = 0 ]
