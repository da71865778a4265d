#!/usr/bin/env bash
# vit_hybrid on the quad-GPU nodes of Jean Zay (IDRIS): 4 x V100-SXM2 and 2 x 20 cores a node.
#
#   sbatch --account=PROJECT@v100 launch/slurm/jean_zay.sh [options of vit_hybrid]
#
#   ranks per node     4       one to a GPU; the program takes the GPU of its rank within the node
#   threads per rank   10      a quarter of the node's cores
#   tp within a node           tp 2 or 4 goes over NVLink, and never leaves the node: tp is the fastest in the order of ranks
#   dp x pp across nodes       over Omni-Path
#
# On the A100 nodes (8 GPUs, 64 cores): -C a100 --ntasks-per-node=8 --gres=gpu:8 --cpus-per-task=8, and an account @a100;
# on the H100 nodes (4 GPUs, 96 cores): -C h100 --cpus-per-task=24, and an account @h100.
#
# A V100 needs LibTorch 2.7.1 (CUDA 12.6), the last whose wheel holds code for it; A100 and H100 take 2.11.0, too:
#
#   module load gcc cuda openmpi hdf5/<version>-mpi-cuda cmake    (module avail shows the versions)
#   cmake --preset cuda -DCMAKE_PREFIX_PATH=<site-packages with torch>
#   cmake --build --preset cuda --target vit_hybrid_cuda
#
# V100s compute fp16 several times as fast as fp32, and have no bf16: give --precision fp16; bf16 on the others.
#SBATCH --job-name=vit_hybrid
#SBATCH --constraint=v100-32g
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=4
#SBATCH --gres=gpu:4
#SBATCH --cpus-per-task=10
#SBATCH --hint=nomultithread
#SBATCH --exclusive
#SBATCH --time=01:00:00
set -euo pipefail
cd "${SLURM_SUBMIT_DIR:?this is a job script: sbatch launch/slurm/jean_zay.sh}"

export OMP_NUM_THREADS=$SLURM_CPUS_PER_TASK
export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK

# Without options of your own: the 16 GPUs as 4 replicas of 2 stages, each layer split over 2 GPUs.
if [ $# = 0 ]; then
  set -- --dp 4 --tp 2 --pp 2
fi
srun --mpi=pmix --distribution=block:block --cpu-bind=cores build/cuda/bin/cuda/vit_hybrid --device cuda "$@"
