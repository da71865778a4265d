// Transposes small squares, in bands as wide as a cache line.
#include "src/kernels/gemm/transpose.h"

#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include <algorithm>

namespace vit_hybrid::kernels {

namespace {

constexpr int64_t kSquare = 4;
constexpr int64_t kBand = 16;

template <class T>
void transpose_plainly(const T* from, int64_t from_stride, int64_t rows, int64_t columns, T* to, int64_t to_stride) {
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t column = 0; column < columns; ++column) {
      to[column * to_stride + row] = from[row * from_stride + column];
    }
  }
}

// 4 x 4 elements, in registers where the instruction set is known to have four floats a register.
void transpose_square(const float* from, int64_t from_stride, float* to, int64_t to_stride) {
#ifdef __SSE2__
  __m128 row0 = _mm_loadu_ps(from);
  __m128 row1 = _mm_loadu_ps(from + from_stride);
  __m128 row2 = _mm_loadu_ps(from + 2 * from_stride);
  __m128 row3 = _mm_loadu_ps(from + 3 * from_stride);
  _MM_TRANSPOSE4_PS(row0, row1, row2, row3);
  _mm_storeu_ps(to, row0);
  _mm_storeu_ps(to + to_stride, row1);
  _mm_storeu_ps(to + 2 * to_stride, row2);
  _mm_storeu_ps(to + 3 * to_stride, row3);
#else
  transpose_plainly(from, from_stride, kSquare, kSquare, to, to_stride);
#endif
}

}  // namespace

void transpose_block(const float* from, int64_t from_stride, int64_t rows, int64_t columns, float* to,
                     int64_t to_stride) {
  const int64_t whole_rows = rows / kSquare * kSquare;
  const int64_t whole_columns = columns / kSquare * kSquare;
  for (int64_t band = 0; band < whole_columns; band += kBand) {
    const int64_t band_end = std::min(band + kBand, whole_columns);
    for (int64_t row = 0; row < whole_rows; row += kSquare) {
      for (int64_t column = band; column < band_end; column += kSquare) {
        transpose_square(from + row * from_stride + column, from_stride, to + column * to_stride + row, to_stride);
      }
    }
  }
  transpose_plainly(from + whole_columns, from_stride, whole_rows, columns - whole_columns,
                    to + whole_columns * to_stride, to_stride);
  transpose_plainly(from + whole_rows * from_stride, from_stride, rows - whole_rows, columns, to + whole_rows,
                    to_stride);
}

void transpose_block(const double* from, int64_t from_stride, int64_t rows, int64_t columns, double* to,
                     int64_t to_stride) {
  transpose_plainly(from, from_stride, rows, columns, to, to_stride);
}

}  // namespace vit_hybrid::kernels
