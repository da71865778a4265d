// LayerNorm on a GPU: its kernels on plain arrays, each launched asynchronously on `stream`.
//
// A row is read once, into registers: those of a warp hold up to 1280 features, those of a block of 256 threads up to
// 4096 (and every row that is not made of aligned vectors). In backward they also hold the sums of the weight
// gradients: a thread has the same columns in all of its rows, and writes their sums once at the end. That is so much
// that too few warps would have room to keep memory busy with half types: there a warp copies its next row to shared
// memory while it works on one. Only rows longer than 4096 are read again from the caches, and have their sums in
// memory.
#include "src/kernels/layer_norm_cuda.h"

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <type_traits>

#include "src/kernels/device_instructions.h"
#include "src/kernels/element_vector.h"

namespace vit_hybrid::kernels {

constexpr int kWarpsOfBlock = 4;      // a warp a row
constexpr int kLongRowThreads = 256;  // a block a row

// Calls run(std::integral_constant) with the elements of a row that each thread of a warp keeps in registers: the least
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

struct WarpThreads {
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
struct BlockThreads {
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

namespace {

constexpr int64_t kMostBlocks = 1 << 20;

// The functions of a thread are __host__ __device__ for tests, and call the device's sums: right where a kernel calls
// them.
#pragma nv_diag_suppress 20011, 20014

template <int kVectors, class T>
__global__ void __launch_bounds__(kWarpsOfBlock* kWarpSize) norm_kernel(NormForward<T> arrays) {
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kWarpsOfBlock;
  for (int64_t row = static_cast<int64_t>(blockIdx.x) * kWarpsOfBlock + threadIdx.x / kWarpSize; row < arrays.rows;
       row += stride) {
    norm_short_row<kVectorWidth<T>, kVectors>(arrays, row, WarpThreads());
  }
}

template <int kWidth, int kVectors, class T>
__global__ void __launch_bounds__(kLongRowThreads) norm_block_kernel(NormForward<T> arrays) {
  for (int64_t row = blockIdx.x; row < arrays.rows; row += gridDim.x) {
    norm_short_row<kWidth, kVectors>(arrays, row, BlockThreads<kLongRowThreads>());
  }
}

template <int kWidth, class T>
__global__ void __launch_bounds__(kLongRowThreads) norm_long_kernel(NormForward<T> arrays) {
  for (int64_t row = blockIdx.x; row < arrays.rows; row += gridDim.x) {
    norm_long_row<kWidth>(arrays, row, BlockThreads<kLongRowThreads>());
  }
}

unsigned num_blocks(int64_t rows, int64_t rows_of_block) {
  return blocks_of_grid(num_blocks_for(rows, rows_of_block), kMostBlocks);
}

// By vectors of `kWidth`, which rows and arrays are aligned for.
template <int kWidth, class T>
void launch_blocks(const NormForward<T>& arrays, CUstream_st* stream) {
  const unsigned blocks = num_blocks(arrays.rows, 1);
  if (arrays.features > kMostInBlock) {
    norm_long_kernel<kWidth><<<blocks, kLongRowThreads, 0, stream>>>(arrays);
    return;
  }
  with_elements_of_thread(arrays.features, [&](auto elements) {
    constexpr int kVectors = elements / kWidth;
    norm_block_kernel<kWidth, kVectors><<<blocks, kLongRowThreads, 0, stream>>>(arrays);
  });
}

template <class T>
bool has_aligned_rows(const NormForward<T>& a) {
  const VectorSplit split = make_vector_split(
      a.features, kVectorWidth<T>,
      {{a.x, sizeof(T)}, {a.branch, sizeof(T)}, {a.y, sizeof(T)}, {a.weight, sizeof(T)}, {a.bias, sizeof(T)}});
  return split.head == 0 && split.num_singles() == 0;
}

// Whether a warp takes a row, where rows are aligned; else a block does.
template <class T>
constexpr bool takes_warps(int64_t features) {
  return !std::is_same_v<T, double> && features <= kMostInRegisters && features % kVectorWidth<T> == 0;
}

// Blocks for which a multiprocessor has registers, where a thread has so many elements of each array and of the sums.
template <class T>
constexpr int blocks_at_once(int64_t elements_of_lane, bool sums_dx) {
  if (sizeof(T) == 2 && sums_dx) {
    return elements_of_lane <= 24 ? 4 : elements_of_lane <= 32 ? 3 : 2;
  }
  if (sizeof(T) == 2) {
    return elements_of_lane <= 16 ? 5 : elements_of_lane <= 32 ? 4 : 3;
  }
  return elements_of_lane <= 24 ? 3 : 2;
}

// The functions of a thread are __host__ __device__ for tests, and call the device's sums: right where a kernel calls
// them.
#pragma nv_diag_suppress 20011, 20014

// Adds up the sums of the block's warps, one after the other, and writes them as a part.
template <int kWidth, int kVectors, int kSums, class F>
using SharedSums = F[kSums][kWarpSize * kWidth * kVectors];
template <int kWidth, int kVectors, int kSums, class F>
__device__ void write_part(const NormSums<F, kWidth * kVectors>& sums, int64_t features,
                           SharedSums<kWidth, kVectors, kSums, F>& shared, F* part) {
  const WarpThreads threads;
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  for (int turn = 0; turn < kWarpsOfBlock; ++turn) {
    if (warp == turn) {
#pragma unroll
      for (int i = 0; i < kWidth * kVectors; ++i) {
        const int64_t column = column_of<kWidth>(i / kWidth, threads) + i % kWidth;
        const F of_thread[] = {sums.weight[i], sums.bias[i], sums.added_bias[i]};
#pragma unroll
        for (int sum = 0; sum < kSums; ++sum) {
          shared[sum][column] = (turn == 0 ? F(0) : shared[sum][column]) + of_thread[sum];
        }
      }
    }
    __syncthreads();
  }
  for (int64_t column = threadIdx.x; column < features; column += blockDim.x) {
    for (int sum = 0; sum < kSums; ++sum) {
      part[sum * features + column] = shared[sum][column];
    }
  }
}

template <int kVectors, class T>
__global__ void __launch_bounds__(kWarpsOfBlock* kWarpSize, blocks_at_once<T>(kVectors* kVectorWidth<T>, false))
    norm_gradient_kernel(NormBackward<T> arrays, ComputeType<T>* partial) {
  using F = ComputeType<T>;
  constexpr int kWidth = kVectorWidth<T>;
  NormSums<F, kWidth * kVectors> sums;
  sums.clear();
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kWarpsOfBlock;
  for (int64_t row = static_cast<int64_t>(blockIdx.x) * kWarpsOfBlock + threadIdx.x / kWarpSize; row < arrays.rows;
       row += stride) {
    norm_gradient_short_row<kWidth, kVectors>(arrays, row, WarpThreads(), sums);
  }
  __shared__ SharedSums<kWidth, kVectors, 2, F> shared;
  write_part<kWidth, kVectors, 2>(sums, arrays.features, shared, partial + blockIdx.x * 2 * arrays.features);
}

// Two rows of a warp in shared memory: one is worked on while the other arrives. A lane reads what it copied itself.
template <int kVectors, class T>
class RowRing {
 public:
  static constexpr int kArrays = 3, kWidth = kVectorWidth<T>;
  static constexpr int kWords = 2 * kArrays * kVectors * kWarpSize;  // of 16 bytes

  /// Begins to copy `row`.
  __device__ RowRing(uint4* words, const NormBackward<T>& a, int64_t row) : lane_(words + WarpThreads().rank()), a_(a) {
    begin(row);
  }
  /// Begins to copy row `next`, in the place of the one that was worked on, and waits for the one that was begun last.
  __device__ void advance(int64_t next) {
    stage_ = 1 - stage_;
    begin(next);
    wait_for_copies_but<1>();
  }

  __device__ ElementVector<T, kWidth> dy(int v) const { return at(0, v); }
  __device__ ElementVector<T, kWidth> x(int v) const { return at(1, v); }
  __device__ ElementVector<T, kWidth> residual(int v) const { return at(2, v); }

 private:
  // Nothing where there is no such row.
  __device__ void begin(int64_t row) {
    if (row < a_.rows) {
      const int64_t first = row * a_.features;
      for_columns<kWidth, kVectors>(a_.features, WarpThreads(), [&](int v, int64_t column) {
        copy_to_shared(place(1 - stage_, 0, v), a_.dy + first + column);
        copy_to_shared(place(1 - stage_, 1, v), a_.x + first + column);
        if (a_.residual_gradient != nullptr) {
          copy_to_shared(place(1 - stage_, 2, v), a_.residual_gradient + first + column);
        }
      });
    }
    end_group_of_copies();
  }
  __device__ uint4* place(int stage, int array, int v) const {
    return lane_ + ((stage * kArrays + array) * kVectors + v) * kWarpSize;
  }
  __device__ ElementVector<T, kWidth> at(int array, int v) const {
    const uint4 words = *place(stage_, array, v);
    ElementVector<T, kWidth> vector;
    memcpy(&vector, &words, sizeof(vector));
    forget_vector(vector);  // else element by element would be read
    return vector;
  }

  uint4* lane_;
  const NormBackward<T>& a_;
  int stage_ = 1;
};

template <int kVectors, int kSums, class T>
__global__ void __launch_bounds__(kWarpsOfBlock* kWarpSize, blocks_at_once<T>(kVectors* kVectorWidth<T>, kSums == 3))
    norm_gradient_ring_kernel(NormBackward<T> arrays, ComputeType<T>* partial) {
  using F = ComputeType<T>;
  constexpr int kWidth = kVectorWidth<T>;
  using Ring = RowRing<kVectors, T>;
  VH_SHARED_MEMORY(uint4, shared);
  NormSums<F, kWidth * kVectors> sums;
  sums.clear();
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kWarpsOfBlock;
  int64_t row = static_cast<int64_t>(blockIdx.x) * kWarpsOfBlock + warp;
  Ring ring(shared + warp * Ring::kWords, arrays, row);
  for (; row < arrays.rows; row += stride) {
    ring.advance(row + stride);
    norm_gradient_of_row<kWidth, kVectors, kSums == 3>(arrays, row, WarpThreads(), ring, sums);
  }
  __syncthreads();  // the rows have been read: their place is that of the sums
  using Sums = SharedSums<kWidth, kVectors, kSums, F>;
  static_assert(sizeof(Sums) <= sizeof(uint4) * kWarpsOfBlock * Ring::kWords);
  write_part<kWidth, kVectors, kSums>(sums, arrays.features, *reinterpret_cast<Sums*>(shared),
                                      partial + blockIdx.x * kSums * arrays.features);
}

// Blocks for which there is room where a block takes a row; elements of 8 bytes take two registers.
template <class T>
constexpr int blocks_of_rows_at_once(int64_t features) {
  return (features <= kMostInBlock / 2 ? 4 : 2) / (sizeof(T) == 8 ? 2 : 1);
}

// A thread has the same columns in each row: it keeps their sums, and writes them as its columns of the part.
template <int kWidth, int kVectors, class T>
__global__ void __launch_bounds__(kLongRowThreads, blocks_of_rows_at_once<T>(kVectors* kWidth* kLongRowThreads))
    norm_gradient_block_kernel(NormBackward<T> arrays, ComputeType<T>* partial) {
  NormSums<ComputeType<T>, kWidth * kVectors> sums;
  sums.clear();
  const BlockThreads<kLongRowThreads> threads;
  for (int64_t row = blockIdx.x; row < arrays.rows; row += gridDim.x) {
    norm_gradient_short_row<kWidth, kVectors>(arrays, row, threads, sums);
  }
  ComputeType<T>* const part = partial + blockIdx.x * 2 * arrays.features;
  for_columns<kWidth, kVectors>(arrays.features, threads, [&](int v, int64_t column) {
#pragma unroll
    for (int k = 0; k < kWidth; ++k) {
      part[column + k] = sums.weight[v * kWidth + k];
      part[arrays.features + column + k] = sums.bias[v * kWidth + k];
    }
  });
}

// Where no registers hold a row, the sums of a part are in memory: of a multiprocessor few enough to stay in a cache.
constexpr int kPartsInMemory = 2;

template <int kWidth, class T>
__global__ void __launch_bounds__(kLongRowThreads)
    norm_gradient_long_kernel(NormBackward<T> arrays, ComputeType<T>* partial) {
  using F = ComputeType<T>;
  F* const part = partial + blockIdx.x * 2 * arrays.features;
  const BlockThreads<kLongRowThreads> threads;
  // A thread clears the columns that it adds to.
  for (int64_t first = column_of<kWidth>(0, threads); first < arrays.features; first += kLongRowThreads * kWidth) {
    for (int64_t column = first; column < first + kWidth; ++column) {
      part[column] = part[arrays.features + column] = F(0);
    }
  }
  for (int64_t row = blockIdx.x; row < arrays.rows; row += gridDim.x) {
    norm_gradient_long_row<kWidth>(arrays, row, threads, part, part + arrays.features);
  }
}

// By vectors of `kWidth`, which rows and arrays are aligned for.
template <int kWidth, class T>
void launch_blocks(const NormBackward<T>& arrays, unsigned blocks, ComputeType<T>* partial, CUstream_st* stream) {
  if (arrays.features > kMostInBlock) {
    norm_gradient_long_kernel<kWidth><<<blocks, kLongRowThreads, 0, stream>>>(arrays, partial);
    return;
  }
  with_elements_of_thread(arrays.features, [&](auto elements) {
    constexpr int kVectors = elements / kWidth;
    norm_gradient_block_kernel<kWidth, kVectors><<<blocks, kLongRowThreads, 0, stream>>>(arrays, partial);
  });
}

template <class T>
bool has_aligned_rows(const NormBackward<T>& a) {
  const VectorSplit split = make_vector_split(a.features, kVectorWidth<T>,
                                              {{a.dy, sizeof(T)},
                                               {a.x, sizeof(T)},
                                               {a.residual_gradient, sizeof(T)},
                                               {a.dx, sizeof(T)},
                                               {a.weight, sizeof(T)}});
  return split.head == 0 && split.num_singles() == 0;
}

constexpr int kColumnsOfBlock = 32;
constexpr int kPartsAtOnce = 32;

// A block has 32 columns; its 32 warps add up every 32nd part each, and then their sums are added in their order.
template <class F, class G>
__global__ void __launch_bounds__(kColumnsOfBlock* kPartsAtOnce)
    add_parts_kernel(NormParts parts, const F* __restrict__ partial, G* weight, G* bias, G* added_bias) {
  __shared__ F sums[kPartsAtOnce][kColumnsOfBlock + 1];
  const int64_t num_columns = parts.sums * parts.features;  // of all gradients
  const int64_t column = static_cast<int64_t>(blockIdx.x) * kColumnsOfBlock + threadIdx.x;
  F sum = 0;
  if (column < num_columns) {
#pragma unroll 4
    for (int64_t part = threadIdx.y; part < parts.parts; part += kPartsAtOnce) {
      sum += partial[part * num_columns + column];
    }
  }
  sums[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y == 0 && column < num_columns) {
    F total = 0;
    for (int i = 0; i < kPartsAtOnce; ++i) {
      total += sums[i][threadIdx.x];
    }
    const int64_t index = column / parts.features;
    G* const gradients = index == 0 ? weight : index == 1 ? bias : added_bias;
    G& gradient = gradients[column - index * parts.features];
    gradient = static_cast<G>(static_cast<F>(gradient) + total);
  }
}

}  // namespace

template <class T>
void launch_norm(const NormForward<T>& arrays, CUstream_st* stream) {
  if (arrays.rows == 0 || arrays.features == 0) {
    return;
  }
  const bool aligned = has_aligned_rows(arrays);
  if constexpr (!std::is_same_v<T, double>) {
    if (aligned && arrays.features <= kMostInRegisters) {
      const unsigned blocks = num_blocks(arrays.rows, kWarpsOfBlock);
      with_elements_of_lane(arrays.features, [&](auto elements) {
        constexpr int kVectors = elements / kVectorWidth<T>;
        norm_kernel<kVectors><<<blocks, kWarpsOfBlock * kWarpSize, 0, stream>>>(arrays);
      });
      return;
    }
  }
  if (aligned) {
    launch_blocks<kVectorWidth<T>>(arrays, stream);
  } else {
    launch_blocks<1>(arrays, stream);
  }
}

template void launch_norm(const NormForward<float>&, CUstream_st*);
template void launch_norm(const NormForward<double>&, CUstream_st*);
template void launch_norm(const NormForward<c10::BFloat16>&, CUstream_st*);
template void launch_norm(const NormForward<c10::Half>&, CUstream_st*);

template <class T>
NormParts norm_parts(const NormBackward<T>& arrays, int num_multiprocessors, bool sums_dx) {
  const int64_t features = arrays.features;
  const bool by_warps = takes_warps<T>(features);
  const bool has_third_sum = sums_dx && sizeof(T) == 2 && by_warps && has_aligned_rows(arrays);
  const int64_t blocks = num_blocks_for(arrays.rows, by_warps ? kWarpsOfBlock : 1);
  const int64_t of_multiprocessor = by_warps                   ? blocks_at_once<T>(features / kWarpSize, has_third_sum)
                                    : features <= kMostInBlock ? blocks_of_rows_at_once<T>(features)
                                                               : kPartsInMemory;
  const int64_t at_once = of_multiprocessor * num_multiprocessors;
  return {blocks < at_once ? blocks : at_once, features, has_third_sum ? 3 : 2};
}

// Rows of half-length types that warps take.
template <int kVectors, int kSums, class T>
void launch_ring(const NormBackward<T>& arrays, unsigned blocks, ComputeType<T>* partial, CUstream_st* stream) {
  constexpr auto kBytes = static_cast<int>(sizeof(uint4)) * kWarpsOfBlock * RowRing<kVectors, T>::kWords;
  const auto kernel = norm_gradient_ring_kernel<kVectors, kSums, T>;
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
  kernel<<<blocks, kWarpsOfBlock * kWarpSize, kBytes, stream>>>(arrays, partial);
}

template <class T>
void launch_norm_backward(const NormBackward<T>& arrays, const NormParts& parts, ComputeType<T>* partial,
                          CUstream_st* stream) {
  if (arrays.rows == 0 || arrays.features == 0) {
    return;
  }
  const bool aligned = has_aligned_rows(arrays);
  const auto blocks = static_cast<unsigned>(parts.parts);
  if constexpr (!std::is_same_v<T, double>) {
    if (aligned && takes_warps<T>(arrays.features)) {
      with_elements_of_lane(arrays.features, [&](auto elements) {
        constexpr int kVectors = elements / kVectorWidth<T>;
        if constexpr (sizeof(T) == 2) {
          parts.sums == 3 ? launch_ring<kVectors, 3>(arrays, blocks, partial, stream)
                          : launch_ring<kVectors, 2>(arrays, blocks, partial, stream);
        } else {
          norm_gradient_kernel<kVectors><<<blocks, kWarpsOfBlock * kWarpSize, 0, stream>>>(arrays, partial);
        }
      });
      return;
    }
  }
  if (aligned) {
    launch_blocks<kVectorWidth<T>>(arrays, blocks, partial, stream);
  } else {
    launch_blocks<1>(arrays, blocks, partial, stream);
  }
}

template <class F, class G>
void launch_add_norm_parts(const NormParts& parts, const F* partial, G* weight, G* bias, G* added_bias,
                           CUstream_st* stream) {
  if (parts.parts == 0 || parts.features == 0) {
    return;
  }
  const auto blocks = static_cast<unsigned>(num_blocks_for(parts.sums * parts.features, kColumnsOfBlock));
  add_parts_kernel<<<blocks, dim3(kColumnsOfBlock, kPartsAtOnce), 0, stream>>>(parts, partial, weight, bias,
                                                                               added_bias);
}

template NormParts norm_parts(const NormBackward<float>&, int, bool);
template NormParts norm_parts(const NormBackward<double>&, int, bool);
template NormParts norm_parts(const NormBackward<c10::BFloat16>&, int, bool);
template NormParts norm_parts(const NormBackward<c10::Half>&, int, bool);

template void launch_norm_backward(const NormBackward<float>&, const NormParts&, float*, CUstream_st*);
template void launch_norm_backward(const NormBackward<double>&, const NormParts&, double*, CUstream_st*);
template void launch_norm_backward(const NormBackward<c10::BFloat16>&, const NormParts&, float*, CUstream_st*);
template void launch_norm_backward(const NormBackward<c10::Half>&, const NormParts&, float*, CUstream_st*);

template void launch_add_norm_parts(const NormParts&, const float*, float*, float*, float*, CUstream_st*);
template void launch_add_norm_parts(const NormParts&, const float*, c10::BFloat16*, c10::BFloat16*, c10::BFloat16*,
                                    CUstream_st*);
template void launch_add_norm_parts(const NormParts&, const float*, c10::Half*, c10::Half*, c10::Half*, CUstream_st*);
template void launch_add_norm_parts(const NormParts&, const double*, double*, double*, double*, CUstream_st*);

}  // namespace vit_hybrid::kernels
