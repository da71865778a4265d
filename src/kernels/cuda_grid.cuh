// Grids of blocks for what repeats, and sums over the threads of a warp and of a block.
#pragma once

#include <cstdint>

#include "src/kernels/element_vector.h"

namespace vit_hybrid {

/// Blocks along y for so many repeats: all of them, or as many as CUDA allows there; a kernel goes on in strides of
/// gridDim.y.
inline unsigned repeats_of_grid(int64_t repeats) {
  constexpr int64_t kMost = 65535;
  return static_cast<unsigned>(repeats < kMost ? repeats : kMost);
}

/// Blocks along x for the items of a split, each with so many of them; along y for its repeats.
inline dim3 grid_of(const VectorSplit& split, int64_t items_of_block, int64_t repeats) {
  return {static_cast<unsigned>(num_blocks_for(split.num_items(), items_of_block)), repeats_of_grid(repeats)};
}

inline constexpr int kWarpSize = 32;
inline constexpr unsigned kAllLanes = 0xFFFFFFFFU;

/// The sum over the threads of a warp, the same bits in each. All of them call it.
template <class T>
__device__ inline T warp_sum(T value) {
#pragma unroll
  for (int distance = kWarpSize / 2; distance > 0; distance /= 2) {
    value += __shfl_xor_sync(kAllLanes, value, distance);
  }
  return value;
}

/// The sum over the `kThreads` threads of a block, the same bits in each. All threads call it.
template <int kThreads, class T>
__device__ inline T block_sum(T value) {
  constexpr int kWarps = kThreads / kWarpSize;
  static_assert(kThreads % kWarpSize == 0 && kWarps <= kWarpSize, "whole warps, whose sums one warp adds up");
  __shared__ T sums[kWarps];
  value = warp_sum(value);
  __syncthreads();  // the sums of an earlier call have been read
  if (threadIdx.x % kWarpSize == 0) {
    sums[threadIdx.x / kWarpSize] = value;
  }
  __syncthreads();
  const unsigned lane = threadIdx.x % kWarpSize;
  return warp_sum(lane < kWarps ? sums[lane] : T(0));
}

}  // namespace vit_hybrid
