// Transposition of a block of a matrix in memory.
#pragma once

#include <cstdint>

namespace vit_hybrid::kernels {

/// to [columns, rows] (row stride `to_stride`) = from [rows, columns] (row stride `from_stride`) transposed.
void transpose_block(const float* from, int64_t from_stride, int64_t rows, int64_t columns, float* to,
                     int64_t to_stride);
void transpose_block(const double* from, int64_t from_stride, int64_t rows, int64_t columns, double* to,
                     int64_t to_stride);

}  // namespace vit_hybrid::kernels
