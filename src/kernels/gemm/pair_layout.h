// The pair layout of bf16 matrices: the right operand of small_product() in bf16, and how it is made.
#pragma once

#include <c10/util/BFloat16.h>

#include <cstdint>

namespace vit_hybrid::kernels {

/// Elements of a matrix [rows, columns] in pairs of rows: [ceil(rows / 2)][columns][2].
constexpr int64_t pairs_size(int64_t rows, int64_t columns) {
  return (rows + 1) / 2 * 2 * columns;
}

/// to[i / 2][j][i % 2] = from[i][j] for i < rows, j < columns, and 0 beside an odd last row: the layout that bf16
/// instructions multiply by (VNNI). `to_stride`, at least `columns`, counts pairs. On the calling thread.
void pack_pairs(const c10::BFloat16* from, int64_t from_stride, int64_t rows, int64_t columns, c10::BFloat16* to,
                int64_t to_stride);

/// The same of the transposed matrix: to[j / 2][i][j % 2] = from[i][j]; `to_stride` is at least `rows`.
void pack_transposed_pairs(const c10::BFloat16* from, int64_t from_stride, int64_t rows, int64_t columns,
                           c10::BFloat16* to, int64_t to_stride);

/// to [columns, rows] = from [rows, columns] transposed, in 16-bit elements.
void transpose_block(const c10::BFloat16* from, int64_t from_stride, int64_t rows, int64_t columns, c10::BFloat16* to,
                     int64_t to_stride);

}  // namespace vit_hybrid::kernels
