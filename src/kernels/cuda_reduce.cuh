// Sums over the threads of a warp and of a block, in a fixed order.
#pragma once

#include <cstdint>

namespace vit_hybrid {

inline constexpr int kWarpSize = 32;
inline constexpr unsigned kAllLanes = 0xFFFFFFFFU;

/// The sum over the lanes of a warp, the same bits in each. All lanes call it.
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
