#!/usr/bin/env bash
# vit_hybrid on the CPU nodes of Cirrus (EPCC, HPE Cray EX, Cray MPICH):
#
#   sbatch --account=CODE launch/slurm/cirrus_cpu.sh [options of vit_hybrid]
#
# A node has 288 cores: 2 sockets of 12 chiplets of 12 cores. The cores of a chiplet share 32 MB of L3 cache, and nothing
# else; so a rank is a chiplet:
#
#   ranks per node     24      one to a chiplet
#   threads per rank   12      one to a core, bound; no hyperthreads
#   tp within a node           24 = tp x whatever: tp moves the most bytes, and tp is the fastest in the order of ranks, so
#                              that a tp group of 2, 3, 4, 6, 8 or 12 never leaves the node (6 or less: nor the socket)
#   dp x pp across nodes
#
# A NUMA node is a quarter of a socket or all of it, as the node was booted; a chiplet lies in one of them either way, and
# a bound rank takes memory there. Fewer, wider ranks: --ntasks-per-node=12 --cpus-per-task=24 (or 8 and 36), as long as
# the product is 288 and no rank lies over both sockets. The program looks at its cores when it starts and says
# "placement: ..." with the option that mends it where ranks share cores, run more threads than they have cores, lie over
# both sockets, or take memory from elsewhere; it says nothing where all is well.
#
# The processors have AVX-512 with bf16: give --precision bf16.
#
# Not tried on Cirrus itself yet: the checks of the placement (tried on made-up descriptions of such a node), widths other
# than 12, and the speed of any of this.
#
# Home directories are not on compute nodes: keep the checkout, the build and LibTorch under /work. Once, on a login node:
#
#   export XDG_CACHE_HOME=/work/CODE/CODE/$USER/.cache       # where install_dependencies puts LibTorch
#   module load PrgEnv-gnu cray-hdf5-parallel cmake
#   launch/install_dependencies --no-packages --no-cuda
#   CC=cc CXX=CC cmake --preset release -DMPI_C_COMPILER=cc && cmake --build --preset release --target vit_hybrid
#   (Boost.Program_options, yaml-cpp, nlohmann-json, xxHash and hwloc: modules or -DCMAKE_PREFIX_PATH)
#SBATCH --job-name=vit_hybrid
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=24
#SBATCH --cpus-per-task=12
#SBATCH --exclusive
#SBATCH --time=01:00:00
#SBATCH --partition=standard
#SBATCH --qos=standard
set -euo pipefail
cd "${SLURM_SUBMIT_DIR:?this is a job script: sbatch launch/slurm/cirrus_cpu.sh}"

module load PrgEnv-gnu cray-hdf5-parallel

export OMP_NUM_THREADS=$SLURM_CPUS_PER_TASK
export OMP_PLACES=cores OMP_PROC_BIND=close
# Slurm does not hand --cpus-per-task of the job on to its steps.
export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK

# Without options of your own: 48 ranks as 12 replicas, each split 4 ways inside of every layer.
if [ $# = 0 ]; then
  set -- --dp 12 --tp 4 --pp 1
fi
srun --hint=nomultithread --distribution=block:block --cpu-bind=cores build/release/bin/vit_hybrid "$@"
