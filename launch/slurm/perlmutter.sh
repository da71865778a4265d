#!/usr/bin/env bash
# vit_hybrid on the GPU nodes of Perlmutter (NERSC, HPE Cray EX, Cray MPICH): 4 x A100 and 64 cores a node.
#
#   sbatch --account=PROJECT_g launch/slurm/perlmutter.sh [options of vit_hybrid]
#
#   ranks per node     4       one to a GPU; the program takes the GPU of its rank within the node
#   threads per rank   16      the rank's share of the cores (32 of Slurm's processors, which are hyperthreads): reading and
#                              preparing samples
#   tp within a node           tp 2 or 4 goes over NVLink, and never leaves the node: tp is the fastest in the order of ranks
#   dp x pp across nodes       over Slingshot
#
# Every rank sees all GPUs of its node (--gpu-bind=none), by which NCCL connects them over NVLink. The nodes of 80 GB:
# --constraint="gpu&hbm80g". bf16 is what A100s are fast in: give --precision bf16.
#
# Not tried on Perlmutter itself yet. Once, on a login node:
#
#   module load PrgEnv-gnu cudatoolkit cray-hdf5-parallel cmake
#   CC=cc CXX=CC cmake --preset cuda -DMPI_C_COMPILER=cc -DCMAKE_PREFIX_PATH=<site-packages with torch>
#   cmake --build --preset cuda --target vit_hybrid_cuda
#SBATCH --job-name=vit_hybrid
#SBATCH --constraint=gpu
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=4
#SBATCH --cpus-per-task=32
#SBATCH --gpus-per-node=4
#SBATCH --exclusive
#SBATCH --time=01:00:00
#SBATCH --qos=regular
set -euo pipefail
cd "${SLURM_SUBMIT_DIR:?this is a job script: sbatch launch/slurm/perlmutter.sh}"

module load PrgEnv-gnu cudatoolkit cray-hdf5-parallel

export OMP_NUM_THREADS=$((SLURM_CPUS_PER_TASK / 2))
export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK

# Without options of your own: the 16 GPUs as 4 replicas of 2 stages, each layer split over 2 GPUs.
if [ $# = 0 ]; then
  set -- --dp 4 --tp 2 --pp 2
fi
srun --distribution=block:block --cpu-bind=cores --gpu-bind=none build/cuda/bin/cuda/vit_hybrid --device cuda "$@"
