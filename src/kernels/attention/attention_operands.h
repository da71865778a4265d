// How the blocked attention hands blocks of q, k, v and dout to its matrix products: fp32 and fp64 lie right as they
// are; in bf16 a right operand comes in pairs of rows, and a depth in whole pairs.
#pragma once

#include <c10/util/BFloat16.h>

#include <cstdint>
#include <type_traits>

#include "src/kernels/gemm/pair_layout.h"
#include "src/kernels/gemm/small_product.h"
#include "src/kernels/gemm/transpose.h"

namespace vit_hybrid::kernels {

template <class T>
inline constexpr bool kInPairs = std::is_same_v<T, c10::BFloat16>;

/// `extent` as the depth of a product: what is added must be zero in one operand and finite in the other.
template <class T>
constexpr int64_t padded_depth(int64_t extent) {
  return kInPairs<T> ? (extent + 1) / 2 * 2 : extent;
}

/// A block [rows, columns] of a tensor, rows `stride` apart.
template <class T>
struct Block {
  const T* data;
  int64_t stride;
  int64_t rows;
  int64_t columns;
};

/// An operand of small_product(): data, and the distance between its rows (bf16 from the right: between rows of pairs).
template <class T>
struct Operand {
  const T* data;
  int64_t stride;
};

/// The block from the right, zeros behind an odd last row; `space`, used in bf16 only, holds padded_depth(rows) rows.
template <class T>
Operand<T> right_operand(const Block<T>& block, T* space) {
  if constexpr (kInPairs<T>) {
    pack_pairs(block.data, block.stride, block.rows, block.columns, space, block.columns);
    return {space, block.columns};
  } else {
    return {block.data, block.stride};
  }
}

/// The transposed block from the right, made in `space` of padded_depth(columns) rows.
template <class T>
Operand<T> transposed_right_operand(const Block<T>& block, T* space) {
  if constexpr (kInPairs<T>) {
    pack_transposed_pairs(block.data, block.stride, block.rows, block.columns, space, block.rows);
  } else {
    transpose_block(block.data, block.stride, block.rows, block.columns, space, block.rows);
  }
  return {space, block.rows};
}

/// The transposed block from the left, made in `space` of `columns` rows of padded_depth(rows), zeros at their ends.
template <class T>
Operand<T> transposed_left_operand(const Block<T>& block, T* space) {
  const int64_t stride = padded_depth<T>(block.rows);
  transpose_block(block.data, block.stride, block.rows, block.columns, space, stride);
  if (stride > block.rows) {
    for (int64_t row = 0; row < block.columns; ++row) {
      space[row * stride + block.rows] = T(0);
    }
  }
  return {space, stride};
}

}  // namespace vit_hybrid::kernels
