#!/usr/bin/env bash
# vit_hybrid on the GPU nodes of the former Cirrus (EPCC): 4 x V100-SXM2-16GB and 2 x 20 cores a node.
#
#   sbatch --account=CODE launch/slurm/cirrus_gpu.sh [options of vit_hybrid]
#
#   ranks per node     4       one to a GPU; the program takes the GPU of its rank within the node
#   threads per rank   10      the rank's share of its socket: reading and preparing samples
#   tp within a node           tp 2 or 4 goes over NVLink, and never leaves the node: tp is the fastest in the order of ranks
#   dp x pp across nodes       over InfiniBand
#
# A V100 needs LibTorch 2.7.1 (CUDA 12.6), the last whose wheel holds code for it; point CMAKE_PREFIX_PATH to it:
#
#   module load gcc openmpi hdf5parallel nvidia/nvhpc cmake      (names differ from one release of the system to the next)
#   cmake --preset cuda -DCMAKE_PREFIX_PATH=<site-packages with torch 2.7.1>
#   cmake --build --preset cuda --target vit_hybrid_cuda
#
# V100s compute fp16 several times as fast as fp32, and have no bf16: give --precision fp16.
#SBATCH --job-name=vit_hybrid
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=4
#SBATCH --cpus-per-task=10
#SBATCH --gres=gpu:4
#SBATCH --exclusive
#SBATCH --time=01:00:00
#SBATCH --partition=gpu
#SBATCH --qos=gpu
set -euo pipefail
cd "${SLURM_SUBMIT_DIR:?this is a job script: sbatch launch/slurm/cirrus_gpu.sh}"

export OMP_NUM_THREADS=$SLURM_CPUS_PER_TASK
export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK

# Without options of your own: the 16 GPUs as 4 replicas of 2 stages, each layer split over 2 GPUs.
if [ $# = 0 ]; then
  set -- --dp 4 --tp 2 --pp 2
fi
srun --mpi=pmix --hint=nomultithread --distribution=block:block --cpu-bind=cores \
  build/cuda/bin/cuda/vit_hybrid --device cuda "$@"
