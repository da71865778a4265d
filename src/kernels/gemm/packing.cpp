// Packing: small squares transposed in bands of a cache line, pairs of rows by shuffles, panels in parallel.
#include "src/kernels/gemm/packing.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>

#include "src/base/instruction_sets.h"
#include "src/base/memory_tracker.h"

#ifdef __SSE2__
#include <emmintrin.h>
#endif

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
  constexpr int64_t kTileBand = 4 * kTileColumns;
  const int64_t whole_rows = rows / tile_rows * tile_rows;
  const int64_t whole_columns = columns / kTileColumns * kTileColumns;
  for (int64_t band = 0; band < whole_columns; band += kTileBand) {
    for (int64_t row = 0; row < whole_rows; row += tile_rows) {
      for (int64_t column = band; column < std::min(band + kTileBand, whole_columns); column += kTileColumns) {
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

using c10::BFloat16;

void pack(const float* from, int64_t stride, int64_t rows, int64_t columns, float* to) {
  for (int64_t row = 0; row < rows; ++row) {
    std::copy_n(from + row * stride, columns, to + row * kPanelColumns<float>);
  }
}

void pack(const BFloat16* from, int64_t stride, int64_t rows, int64_t columns, BFloat16* to) {
  pack_pairs(from, stride, rows, columns, to, kPanelColumns<BFloat16>);
}

void pack_transposed(const float* from, int64_t stride, int64_t rows, int64_t columns, float* to) {
  transpose_block(from, stride, rows, columns, to, kPanelColumns<float>);
}

void pack_transposed(const BFloat16* from, int64_t stride, int64_t rows, int64_t columns, BFloat16* to) {
  pack_transposed_pairs(from, stride, rows, columns, to, kPanelColumns<BFloat16>);
}

// fill(rows, columns, to) for every block of the rows of every panel of a matrix [depth, columns].
template <class T, class Fill>
at::Tensor fill_panels(int64_t depth, int64_t num_columns, const at::Tensor& reuse, const Fill& fill) {
  const int64_t panels = num_blocks(num_columns, kPanelColumns<T>);
  const int64_t rows_of_panel = pairs_size(depth, 1);
  at::Tensor packed = reuse.defined() ? reuse
                                      : at::empty({panels, rows_of_panel, kPanelColumns<T>},
                                                  at::TensorOptions(c10::CppTypeToScalarType<T>::value));
  const int64_t blocks = num_blocks(depth, kPanelDepth<T>);
  at::parallel_for(0, panels * blocks, 1, [&](int64_t begin, int64_t end) {
    for (int64_t task = begin; task < end; ++task) {
      const int64_t panel = task / blocks;
      const Range rows = block_range(task % blocks, kPanelDepth<T>, depth);
      fill(rows, block_range(panel, kPanelColumns<T>, num_columns),
           packed.mutable_data_ptr<T>() + (panel * rows_of_panel + rows.begin) * kPanelColumns<T>);
    }
  });
  return packed;
}

template <class T>
at::Tensor pack_matrix(const at::Tensor& matrix, const at::Tensor& reuse) {
  const T* const from = matrix.const_data_ptr<T>();
  const int64_t stride = matrix.size(1);
  return fill_panels<T>(matrix.size(0), stride, reuse, [=](Range rows, Range columns, T* to) {
    pack(from + rows.begin * stride + columns.begin, stride, rows.size(), columns.size(), to);
  });
}

template <class T>
at::Tensor pack_transposed_matrix(const at::Tensor& matrix, const at::Tensor& reuse) {
  const T* const from = matrix.const_data_ptr<T>();
  const int64_t stride = matrix.size(1);
  return fill_panels<T>(stride, matrix.size(0), reuse, [=](Range rows, Range columns, T* to) {
    pack_transposed(from + columns.begin * stride + rows.begin, stride, columns.size(), rows.size(), to);
  });
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

at::Tensor pack_panels(const at::Tensor& matrix, const at::Tensor& reuse) {
  return matrix.scalar_type() == at::kFloat ? pack_matrix<float>(matrix, reuse) : pack_matrix<BFloat16>(matrix, reuse);
}

at::Tensor pack_transposed_panels(const at::Tensor& matrix, const at::Tensor& reuse) {
  return matrix.scalar_type() == at::kFloat ? pack_transposed_matrix<float>(matrix, reuse)
                                            : pack_transposed_matrix<BFloat16>(matrix, reuse);
}

const at::Tensor& PackedWeight::forward_panels(int64_t version) {
  if (forward_.version != version) {
    const MemoryScope scope(MemoryClass::kPackedWeights);
    forward_ = {pack_transposed_panels(weight_, forward_.values), version};
  }
  return forward_.values;
}

const at::Tensor& PackedWeight::backward_panels(int64_t version) {
  if (backward_.version != version) {
    const MemoryScope scope(MemoryClass::kPackedWeights);
    backward_ = {pack_panels(weight_, backward_.values), version};
  }
  return backward_.values;
}

PackedWeight& PackedWeight::in_fp32(int64_t version) {
  const MemoryScope scope(MemoryClass::kPackedWeights);
  if (in_fp32_ == nullptr) {
    in_fp32_ = std::make_unique<PackedWeight>(weight_.to(at::kFloat));
  } else if (fp32_version_ != version) {
    in_fp32_->weight_.copy_(weight_);
  }
  fp32_version_ = version;
  return *in_fp32_;
}

}  // namespace vit_hybrid::kernels
