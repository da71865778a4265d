// Residual sum and LayerNorm: a warp a row where its registers hold the row, else a block.
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <type_traits>

#include "src/base/vector_split.h"
#include "src/kernels/norm_lanes_cuda.cuh"

namespace vit_hybrid::kernels {

namespace {

constexpr int64_t kMostBlocks = 1 << 20;

// The lane functions are __host__ __device__ for tests, and call the device's sums: right where a kernel calls them.
#pragma nv_diag_suppress 20011, 20014

template <int kVectors, class T>
__global__ void __launch_bounds__(kWarpsOfBlock* kWarpSize) norm_kernel(NormForward<T> arrays) {
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kWarpsOfBlock;
  for (int64_t row = static_cast<int64_t>(blockIdx.x) * kWarpsOfBlock + threadIdx.x / kWarpSize; row < arrays.rows;
       row += stride) {
    norm_short_row<kVectorWidth<T>, kVectors>(arrays, row, WarpLanes());
  }
}

template <int kWidth, int kVectors, class T>
__global__ void __launch_bounds__(kLongRowThreads) norm_block_kernel(NormForward<T> arrays) {
  for (int64_t row = blockIdx.x; row < arrays.rows; row += gridDim.x) {
    norm_short_row<kWidth, kVectors>(arrays, row, BlockLanes<kLongRowThreads>());
  }
}

template <int kWidth, class T>
__global__ void __launch_bounds__(kLongRowThreads) norm_long_kernel(NormForward<T> arrays) {
  for (int64_t row = blockIdx.x; row < arrays.rows; row += gridDim.x) {
    norm_long_row<kWidth>(arrays, row, BlockLanes<kLongRowThreads>());
  }
}

unsigned num_blocks(int64_t rows, int64_t rows_of_block) {
  const int64_t blocks = num_blocks_for(rows, rows_of_block);
  return static_cast<unsigned>(blocks < kMostBlocks ? blocks : kMostBlocks);
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
    norm_block_kernel<kWidth, elements / kWidth><<<blocks, kLongRowThreads, 0, stream>>>(arrays);
  });
}

template <class T>
bool has_aligned_rows(const NormForward<T>& a) {
  const VectorSplit split = make_vector_split(
      a.features, kVectorWidth<T>,
      {{a.x, sizeof(T)}, {a.branch, sizeof(T)}, {a.y, sizeof(T)}, {a.weight, sizeof(T)}, {a.bias, sizeof(T)}});
  return split.head == 0 && split.num_singles() == 0;
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
        norm_kernel<elements / kVectorWidth<T>><<<blocks, kWarpsOfBlock * kWarpSize, 0, stream>>>(arrays);
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

}  // namespace vit_hybrid::kernels
