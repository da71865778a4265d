// The lanes that share a row on a GPU: a warp whose registers hold the row, or a block.
#pragma once

#include <cstdint>
#include <type_traits>

#include "src/kernels/cuda_reduce.cuh"
#include "src/kernels/norm_kernels_cuda.h"

namespace vit_hybrid::kernels {

constexpr int kWarpsOfBlock = 4;      // a warp a row
constexpr int kLongRowThreads = 256;  // a block a row

// Calls run(std::integral_constant) with the elements of a row that each lane of a warp keeps in registers: the least
// of those that are compiled which hold `features`, at most kMostInRegisters.
template <class Run>
void with_elements_of_lane(int64_t features, const Run& run) {
  const int64_t needed = (features + kWarpSize - 1) / kWarpSize;
  if (needed <= 16) {
    run(std::integral_constant<int, 16>());
  } else if (needed <= 24) {
    run(std::integral_constant<int, 24>());
  } else if (needed <= 32) {
    run(std::integral_constant<int, 32>());
  } else {
    run(std::integral_constant<int, kMostInRegisters / kWarpSize>());
  }
}

// The same for each thread of a block, at most kMostInBlock features.
template <class Run>
void with_elements_of_thread(int64_t features, const Run& run) {
  if (features <= kMostInBlock / 2) {
    run(std::integral_constant<int, kMostInBlock / 2 / kLongRowThreads>());
  } else {
    run(std::integral_constant<int, kMostInBlock / kLongRowThreads>());
  }
}

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
  template <class Vector>
  __device__ void forget(Vector& vector) const {
    if constexpr (sizeof(Vector) >= sizeof(uint32_t)) {  // one element of two bytes is not worth it
      forget_vector(vector);
    }
  }
};

}  // namespace vit_hybrid::kernels
