#!/usr/bin/env bash
# Each job script: outside of a job it says how it is used; inside of one its own layout is that of the ranks it asks for, and
# options of the user take its place. Launchers and modules are stand-ins that print their words.
#
#   job_scripts.sh REPOSITORY WORK_DIR
set -euo pipefail

root=$1
mkdir -p "$2/bin"
cd "$2"
complain() { echo "job_scripts: $*" >&2; exit 1; }

for name in srun mpirun; do
  printf '#!/bin/sh\nprintf "%%s " %s "$@"\n' "$name" >"bin/$name"
  chmod +x "bin/$name"
done
export PATH=$PWD/bin:$PATH
module() { [ "$1" = load ]; }
export -f module

# value SCRIPT NAME: what the script asks of the scheduler
value() { sed -nE "s/^#(SBATCH --|PBS -l (.*:)?)$2=([0-9]+).*/\3/p" "$1" | head -n 1; }
degree() { sed -nE "s/.* --$1 ([0-9]+).*/\1/p" <<<"$call"; }

for script in "$root"/launch/slurm/*.sh "$root"/launch/pbs/*.sh; do
  name=$(basename "$script")
  if message=$(env -u SLURM_SUBMIT_DIR -u PBS_O_WORKDIR "$script" 2>&1); then complain "$name runs outside of a job"; fi
  [[ $message == *"this is a job script: "*"$name" ]] || complain "$name says '$message'"
  case $script in
    */slurm/*)
      ranks=$(($(value "$script" nodes) * $(value "$script" ntasks-per-node)))
      SLURM_CPUS_PER_TASK=$(value "$script" cpus-per-task)
      export SLURM_CPUS_PER_TASK
      call=$(SLURM_SUBMIT_DIR=$PWD "$script")
      given=$(SLURM_SUBMIT_DIR=$PWD "$script" --dp 3 --name "two words")
      [[ $given == *" --dp 3 --name two words " ]] || complain "$name hands on '$given'"
      ;;
    *)
      ranks=$(($(value "$script" select) * $(value "$script" mpiprocs)))
      seq "$ranks" >nodes
      call=$(PBS_O_WORKDIR=$PWD PBS_NODEFILE=$PWD/nodes "$script")
      [[ $call == "mpirun -n $ranks "* ]] || complain "$name starts '$call'"
      given=$(PBS_O_WORKDIR=$PWD PBS_NODEFILE=$PWD/nodes OPTIONS="--dp 3 --seed 2" "$script")
      [[ $given == *" --dp 3 --seed 2 " ]] || complain "$name hands on '$given'"
      ;;
  esac
  [ $(($(degree dp) * $(degree tp) * $(degree pp))) = "$ranks" ] || complain "$name: not $ranks ranks: $call"
  echo "$name: $call"
done
echo "job_scripts: passed"
