// Packing of bf16 matrices into pairs of rows, and transposition of 16-bit elements, in vectors.
#include "src/kernels/gemm/pair_layout.h"

#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include <algorithm>

#include "src/base/instruction_sets.h"
#include "src/base/partition.h"

namespace vit_hybrid::kernels {

namespace {

using c10::BFloat16;

constexpr int64_t kTileColumns = 8;  // a register of 16 bytes
constexpr int64_t kPairRows = 4;

VH_VERSIONS void interleave(const BFloat16* first, const BFloat16* second, int64_t count, BFloat16* to) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) {
    to[2 * i].x = first[i].x;
    to[2 * i + 1].x = second[i].x;
  }
}

void interleave_with_zeros(const BFloat16* row, int64_t count, BFloat16* to) {
  for (int64_t i = 0; i < count; ++i) {
    to[2 * i].x = row[i].x;
    to[2 * i + 1].x = 0;
  }
}

#ifdef __SSE2__

__m128i load(const BFloat16* from) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
}
void store(__m128i value, BFloat16* to) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), value);
}

// 4 x 4 words of two elements.
void store_transposed(const __m128i (&rows)[4], BFloat16* to, int64_t to_stride) {
  const __m128i low01 = _mm_unpacklo_epi32(rows[0], rows[1]);
  const __m128i low23 = _mm_unpacklo_epi32(rows[2], rows[3]);
  const __m128i high01 = _mm_unpackhi_epi32(rows[0], rows[1]);
  const __m128i high23 = _mm_unpackhi_epi32(rows[2], rows[3]);
  store(_mm_unpacklo_epi64(low01, low23), to);
  store(_mm_unpackhi_epi64(low01, low23), to + to_stride);
  store(_mm_unpacklo_epi64(high01, high23), to + 2 * to_stride);
  store(_mm_unpackhi_epi64(high01, high23), to + 3 * to_stride);
}

// kPairRows rows of 4 pairs.
void transpose_pairs(const BFloat16* from, int64_t from_stride, BFloat16* to, int64_t to_stride) {
  const __m128i rows[4] = {load(from), load(from + from_stride), load(from + 2 * from_stride),
                           load(from + 3 * from_stride)};
  store_transposed(rows, to, to_stride);
}

// kTileColumns squared elements: with each two rows interleaved, they are words of two rows to be transposed.
void transpose_square(const BFloat16* from, int64_t from_stride, BFloat16* to, int64_t to_stride) {
  __m128i left[4];
  __m128i right[4];
  for (int64_t i = 0; i < 4; ++i) {
    const __m128i even = load(from + 2 * i * from_stride);
    const __m128i odd = load(from + (2 * i + 1) * from_stride);
    left[i] = _mm_unpacklo_epi16(even, odd);
    right[i] = _mm_unpackhi_epi16(even, odd);
  }
  store_transposed(left, to, to_stride);
  store_transposed(right, to + 4 * to_stride, to_stride);
}

#else

void transpose_pairs(const BFloat16* from, int64_t from_stride, BFloat16* to, int64_t to_stride) {
  for (int64_t i = 0; i < kPairRows * kTileColumns; ++i) {
    const int64_t row = i / kTileColumns;
    const int64_t column = i % kTileColumns;
    to[column / 2 * to_stride + 2 * row + column % 2] = from[row * from_stride + column];
  }
}

void transpose_square(const BFloat16* from, int64_t from_stride, BFloat16* to, int64_t to_stride) {
  for (int64_t i = 0; i < kTileColumns * kTileColumns; ++i) {
    to[i % kTileColumns * to_stride + i / kTileColumns] = from[i / kTileColumns * from_stride + i % kTileColumns];
  }
}

#endif

// Calls tile(row, column) for the whole tiles of rows x columns and element(row, column) for the elements beside them.
// A band of columns at a time: what is written then lies in few cache lines.
template <class Tile, class Element>
void for_tiles(int64_t rows, int64_t columns, int64_t tile_rows, Tile tile, Element element) {
  constexpr int64_t kBand = 4 * kTileColumns;
  const int64_t whole_rows = rows / tile_rows * tile_rows;
  const int64_t whole_columns = columns / kTileColumns * kTileColumns;
  for (int64_t band = 0; band < whole_columns; band += kBand) {
    for (int64_t row = 0; row < whole_rows; row += tile_rows) {
      for (int64_t column = band; column < std::min(band + kBand, whole_columns); column += kTileColumns) {
        tile(row, column);
      }
    }
  }
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t column = row < whole_rows ? whole_columns : 0; column < columns; ++column) {
      element(row, column);
    }
  }
}

}  // namespace

void pack_pairs(const BFloat16* from, int64_t from_stride, int64_t rows, int64_t columns, BFloat16* to,
                int64_t to_stride) {
  int64_t row = 0;
  for (; row + 1 < rows; row += 2) {
    interleave(from + row * from_stride, from + (row + 1) * from_stride, columns, to + row * to_stride);
  }
  if (row < rows) {
    interleave_with_zeros(from + row * from_stride, columns, to + row * to_stride);
  }
}

void pack_transposed_pairs(const BFloat16* from, int64_t from_stride, int64_t rows, int64_t columns, BFloat16* to,
                           int64_t to_stride) {
  const auto pair = [=](int64_t row, int64_t column) { return to + column / 2 * 2 * to_stride + 2 * row; };
  for_tiles(
      rows, columns, kPairRows,
      [=](int64_t row, int64_t column) {
        transpose_pairs(from + row * from_stride + column, from_stride, pair(row, column), 2 * to_stride);
      },
      [=](int64_t row, int64_t column) {
        pair(row, column)[column % 2] = from[row * from_stride + column];
        if (column + 1 == columns && column % 2 == 0) {
          pair(row, column)[1].x = 0;
        }
      });
}

void transpose_block(const BFloat16* from, int64_t from_stride, int64_t rows, int64_t columns, BFloat16* to,
                     int64_t to_stride) {
  for_tiles(
      rows, columns, kTileColumns,
      [=](int64_t row, int64_t column) {
        transpose_square(from + row * from_stride + column, from_stride, to + column * to_stride + row, to_stride);
      },
      [=](int64_t row, int64_t column) { to[column * to_stride + row] = from[row * from_stride + column]; });
}

}  // namespace vit_hybrid::kernels
