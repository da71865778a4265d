// The gradients of q, k and v copied into that of qkv on a GPU: the work of a thread, and the launch.
//
// flash's and cuDNN's backward return three tensors, where the gradient of qkv is one; the efficient kernel writes
// thirds of one tensor and needs no copy. qkv's bias gradient is not added up on the way: it belongs to the linear
// layer, whose backward measures whether the weight gradient's product or a kernel of its own adds it up.
#pragma once

#include <cstdint>

#include "src/kernels/element_vector.h"

struct CUstream_st;  // cudaStream_t points to it

namespace vit_hybrid::kernels {

/// Three matrices [rows, columns] that become the thirds of the rows of one, [rows, 3 columns].
template <class T>
struct QkvGradientPass {
  const T* dq;
  const T* dk;
  const T* dv;
  T* dqkv;
  int64_t rows;
  int64_t columns;

  /// What column `column` of dqkv is copied from, in row 0.
  VH_HOST_DEVICE const T* source_of(int64_t column) const {
    return column < columns       ? dq + column
           : column < 2 * columns ? dk + (column - columns)
                                  : dv + (column - 2 * columns);
  }
};

/// Copies `kWidth` elements from `column` of dqkv on, in the rows first, first + stride, ..., kRows of them: all are
/// read before the first is written, so that memory is kept busy. kWidth divides `columns`, and all arrays are aligned
/// for it.
template <int kWidth, int kRows, class T>
VH_HOST_DEVICE inline void qkv_gradient_share(const QkvGradientPass<T>& pass, int64_t column, int64_t first,
                                              int64_t stride) {
  const T* const source = pass.source_of(column);
  ElementVector<T, kWidth> vectors[kRows];
  VH_UNROLL
  for (int i = 0; i < kRows; ++i) {
    const int64_t row = first + i * stride;
    if (row < pass.rows) {
      vectors[i] = load_vector<kWidth>(source + row * pass.columns);
    }
  }
  VH_UNROLL
  for (int i = 0; i < kRows; ++i) {
    const int64_t row = first + i * stride;
    if (row < pass.rows) {
      store_vector(pass.dqkv + row * 3 * pass.columns + column, vectors[i]);
    }
  }
}

/// The whole pass, asynchronous on `stream`: 16 bytes at a time where rows and arrays are aligned for it. float,
/// double, BFloat16 and Half.
template <class T>
void launch_qkv_gradient(const QkvGradientPass<T>& pass, CUstream_st* stream);

}  // namespace vit_hybrid::kernels
