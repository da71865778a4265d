#!/usr/bin/env bash
# vit_hybrid under PBS, as ABCI 3.0 (AIST) has it: whole nodes of 8 x H200 and 2 x 48 cores.
#
#   qsub -P GROUP launch/pbs/abci.sh                         with the options below
#   qsub -P GROUP -v OPTIONS="--dp 8 --tp 2 --config ..." launch/pbs/abci.sh
#
#   ranks per node     8       one to a GPU; the program takes the GPU of its rank within the node
#   threads per rank   12      the rank's share of the cores: reading and preparing samples
#   tp within a node           tp 2, 4 or 8 goes over NVLink, and never leaves the node: tp is the fastest in the order of ranks
#   dp x pp across nodes       over InfiniBand
#
# PBS hands a script no words, so options come in the variable OPTIONS, cut at spaces. More nodes:
# qsub -l select=4:mpiprocs=8. On another PBS cluster: its queue, its modules, and ranks and cores of its nodes.
#
# Not tried on ABCI itself yet. Once, on a node: load the modules below, then
#
#   cmake --preset cuda -DCMAKE_PREFIX_PATH=<site-packages with torch>
#   cmake --build --preset cuda --target vit_hybrid_cuda
#PBS -N vit_hybrid
#PBS -q rt_HF
#PBS -l select=2:mpiprocs=8
#PBS -l walltime=01:00:00
#PBS -j oe
set -euo pipefail
cd "${PBS_O_WORKDIR:?this is a job script: qsub launch/pbs/abci.sh}"

module load cuda hpcx
export OMP_NUM_THREADS=12

# PBS_NODEFILE has a line for each rank.
ranks=$(wc -l <"$PBS_NODEFILE")
# Without options of your own: the 16 GPUs as 4 replicas of 2 stages, each layer split over 2 GPUs.
read -r -a options <<<"${OPTIONS:---dp 4 --tp 2 --pp 2}"
mpirun -n "$ranks" --hostfile "$PBS_NODEFILE" --map-by ppr:8:node:PE=12 --bind-to core -x OMP_NUM_THREADS \
  build/cuda/bin/cuda/vit_hybrid --device cuda "${options[@]}"
