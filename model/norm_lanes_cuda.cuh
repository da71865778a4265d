// The lanes that share a row on a GPU: a warp, or a block.
#pragma once

#include <cstdint>

#include "src/base/cuda_reduce.cuh"

namespace vit_hybrid::model {

// To the compiler, the vector is another one afterwards.
template <class Vector>
__device__ inline void forget_vector(Vector& vector) {
  static_assert(sizeof(Vector) % sizeof(uint32_t) == 0, "whole registers");
  uint32_t words[sizeof(Vector) / sizeof(uint32_t)];
  memcpy(words, &vector, sizeof(Vector));
#pragma unroll
  for (uint32_t& word : words) {
    asm volatile("" : "+r"(word));
  }
  memcpy(&vector, words, sizeof(Vector));
}

struct WarpLanes {
  __device__ int rank() const { return static_cast<int>(threadIdx.x) % kWarpSize; }
  __device__ int size() const { return kWarpSize; }
  template <class F>
  __device__ F sum(F value) const {
    return warp_sum(value);
  }
  template <class Vector>
  __device__ void forget(Vector& vector) const {
    forget_vector(vector);
  }
};

template <int kThreads>
struct BlockLanes {
  __device__ int rank() const { return static_cast<int>(threadIdx.x); }
  __device__ int size() const { return kThreads; }
  template <class F>
  __device__ F sum(F value) const {
    return block_sum<kThreads>(value);
  }
};

}  // namespace vit_hybrid::model
