#!/usr/bin/env bash
# vit_hybrid on ARCHER2 (EPCC, HPE Cray EX, Cray MPICH): 2 x EPYC 7742 of 64 cores a node.
#
#   sbatch --account=CODE launch/slurm/archer2.sh [options of vit_hybrid]
#
# A node has 8 NUMA regions of 16 cores; in each, 4 cores share 16 MB of L3 cache:
#
#   ranks per node     8       one to a NUMA region, whose memory a bound rank takes
#   threads per rank   16      one to a core, bound; no hyperthreads
#   tp within a node           tp is the fastest in the order of ranks: 2, 4 or 8 never leaves the node
#   dp x pp across nodes
#
# Narrower ranks: --ntasks-per-node=16 --cpus-per-task=8, as long as the product is 128. These processors have no bf16:
# stay with fp32.
#
# Not tried on ARCHER2 itself yet.
#
# Home directories are not on compute nodes: keep the checkout, the build and LibTorch under /work. Once, on a login node:
#
#   export XDG_CACHE_HOME=/work/CODE/CODE/$USER/.cache       # where install_dependencies puts LibTorch
#   module load PrgEnv-gnu cray-hdf5-parallel cmake
#   launch/install_dependencies --no-packages --no-cuda
#   CC=cc CXX=CC cmake --preset release -DMPI_C_COMPILER=cc && cmake --build --preset release --target vit_hybrid
#   (Boost.Program_options, yaml-cpp, nlohmann-json, xxHash and hwloc: modules or -DCMAKE_PREFIX_PATH)
#SBATCH --job-name=vit_hybrid
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=8
#SBATCH --cpus-per-task=16
#SBATCH --exclusive
#SBATCH --time=01:00:00
#SBATCH --partition=standard
#SBATCH --qos=standard
set -euo pipefail
cd "${SLURM_SUBMIT_DIR:?this is a job script: sbatch launch/slurm/archer2.sh}"

module load PrgEnv-gnu cray-hdf5-parallel

export OMP_NUM_THREADS=$SLURM_CPUS_PER_TASK
export OMP_PLACES=cores OMP_PROC_BIND=close
# Slurm does not hand --cpus-per-task of the job on to its steps.
export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK

# Without options of your own: 32 ranks as 16 replicas, each split over 2 ranks inside of every layer.
if [ $# = 0 ]; then
  set -- --dp 16 --tp 2 --pp 1
fi
srun --hint=nomultithread --distribution=block:block --cpu-bind=cores build/release/bin/vit_hybrid "$@"
