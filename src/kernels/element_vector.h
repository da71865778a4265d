// ElementVector: a few elements that are read and written as one; the split of arrays into aligned ones, and on a GPU
// the grids of blocks for it and sums over the threads of a warp and of a block.
#pragma once

#include <c10/util/BFloat16.h>

#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <type_traits>

#include "src/base/instruction_sets.h"

namespace vit_hybrid::kernels {

/// What is computed in for elements of type T: double for double, else float.
template <class T>
using ComputeType = std::conditional_t<std::is_same_v<T, double>, double, float>;

/// Elements of 16 bytes.
template <class T>
inline constexpr int kVectorWidth = 16 / static_cast<int>(sizeof(T));

/// `kWidth` neighbouring elements, aligned so that they move in accesses of up to 16 bytes.
template <class T, int kWidth>
struct alignas(sizeof(T) * kWidth < 16 ? sizeof(T) * kWidth : 16) ElementVector {
  T values[kWidth];

  VH_HOST_DEVICE T& operator[](int i) { return values[i]; }
  VH_HOST_DEVICE const T& operator[](int i) const { return values[i]; }
};

/// The elements at `data`, which must be aligned as ElementVector is.
template <int kWidth, class T>
VH_HOST_DEVICE inline ElementVector<T, kWidth> load_vector(const T* data) {
  return *reinterpret_cast<const ElementVector<T, kWidth>*>(data);
}
/// To global memory. Device code stores whole words: nvcc would make a store of each element of a copied vector.
template <class T, int kWidth>
VH_HOST_DEVICE inline void store_vector(T* data, const ElementVector<T, kWidth>& vector) {
  using Vector = ElementVector<T, kWidth>;
#if defined(__CUDA_ARCH__)
  if constexpr (sizeof(Vector) >= 8) {
    using Word = std::conditional_t<sizeof(Vector) % 16 == 0, uint4, uint2>;
    VH_UNROLL
    for (size_t i = 0; i < sizeof(Vector) / sizeof(Word); ++i) {
      Word word;
      memcpy(&word, reinterpret_cast<const char*>(&vector) + i * sizeof(Word), sizeof(Word));
      __stwb(reinterpret_cast<Word*>(data) + i, word);
    }
  } else {
    *reinterpret_cast<Vector*>(data) = vector;
  }
#else
  *reinterpret_cast<Vector*>(data) = vector;
#endif
}

/// `kWidth` elements in the computing type.
template <int kWidth, class T>
VH_HOST_DEVICE inline void widen(const ElementVector<T, kWidth>& from, ComputeType<T>* to) {
  if constexpr (std::is_same_v<T, c10::BFloat16> && kWidth % 2 == 0) {  // the upper halves of floats: an operation each
    uint32_t words[kWidth / 2];
    memcpy(words, &from, sizeof(words));
    VH_UNROLL
    for (int i = 0; i < kWidth / 2; ++i) {
      const uint32_t pair[2] = {words[i] << 16U, words[i] & 0xFFFF0000U};
      memcpy(to + 2 * i, pair, sizeof(pair));
    }
  } else {
    VH_UNROLL
    for (int k = 0; k < kWidth; ++k) {
      to[k] = static_cast<ComputeType<T>>(from[k]);
    }
  }
}

/// The product or sum in the computing type, rounded once to T.
template <class T>
VH_HOST_DEVICE inline T rounded(ComputeType<T> value) {
  return static_cast<T>(value);
}

/// `count` elements are `head` single ones, `vectors` vectors of `width`, and a tail of single ones.
struct VectorSplit {
  int64_t count = 0;
  int64_t head = 0;
  int64_t vectors = 0;
  int width = 1;

  /// First element of vector i.
  VH_HOST_DEVICE int64_t vector(int64_t i) const { return head + i * width; }
  VH_HOST_DEVICE int64_t num_singles() const { return count - vectors * width; }
  /// The larger of the two: what threads must be there for.
  int64_t num_items() const { return vectors > num_singles() ? vectors : num_singles(); }
  /// Single element i, of the head and then the tail.
  VH_HOST_DEVICE int64_t single(int64_t i) const { return i < head ? i : i + vectors * width; }
};

/// The vectors, or single elements, that one thread takes: first, first + stride, ... below `end`. The threads of a
/// block take neighbours, and a block takes `threads * per_thread` of them.
struct ThreadShare {
  int64_t first = 0;
  int64_t end = 0;
  int64_t stride = 1;

  VH_HOST_DEVICE static ThreadShare of(int64_t block, int thread, int threads, int64_t per_thread) {
    const int64_t begin = block * threads * per_thread;
    return {begin + thread, begin + threads * per_thread, threads};
  }
  /// The end of the share among `count` of them.
  VH_HOST_DEVICE int64_t end_among(int64_t count) const { return end < count ? end : count; }
};

/// Blocks of `of_block` that `items` take.
inline int64_t num_blocks_for(int64_t items, int64_t of_block) {
  return (items + of_block - 1) / of_block;
}

/// An array whose elements are read or written together with those of others.
struct FlatArray {
  const void* data;  ///< null: there is none
  int64_t element_bytes;
};

/// The split after whose head all arrays are aligned to min(16, width elements) bytes; all elements are single where
/// their alignments differ.
inline VectorSplit make_vector_split(int64_t count, int width, std::initializer_list<FlatArray> arrays) {
  for (int64_t head = 0; head < width && head < count; ++head) {
    bool aligned = true;
    for (const FlatArray& array : arrays) {
      const int64_t bytes = array.element_bytes * width < 16 ? array.element_bytes * width : 16;
      const auto address = static_cast<int64_t>(reinterpret_cast<uintptr_t>(array.data)) + head * array.element_bytes;
      aligned = aligned && (array.data == nullptr || address % bytes == 0);
    }
    if (aligned) {
      return {count, head, (count - head) / width, width};
    }
  }
  return {count, count, 0, width};
}

#if defined(__CUDACC__) || defined(VH_EMULATES_KERNELS)

/// Blocks along a dimension of a grid: all of them, or `most`; a kernel goes on in strides of gridDim.
inline unsigned blocks_of_grid(int64_t blocks, int64_t most) {
#if defined(VH_EMULATES_KERNELS)
  if (!::vit_hybrid::testing::RealGrids::are_real) most = ::vit_hybrid::testing::kMostBlocksBeforeStrides;
#endif
  return static_cast<unsigned>(blocks < most ? blocks : most);
}

/// Blocks along y for so many repeats; CUDA allows 65535 there.
inline unsigned repeats_of_grid(int64_t repeats) {
  return blocks_of_grid(repeats, 65535);
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

#endif  // __CUDACC__ || VH_EMULATES_KERNELS

}  // namespace vit_hybrid::kernels
