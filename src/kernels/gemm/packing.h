// Packing of matrices on the host: transposed blocks, bf16 in pairs of rows (VNNI), panels of columns, and weights
// beside their packed copies.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/BFloat16.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <type_traits>
#include <utility>

#include "src/base/partition.h"

namespace vit_hybrid::kernels {

/// to [columns, rows] (row stride `to_stride`) = from [rows, columns] (row stride `from_stride`) transposed.
void transpose_block(const float* from, int64_t from_stride, int64_t rows, int64_t columns, float* to,
                     int64_t to_stride);
void transpose_block(const double* from, int64_t from_stride, int64_t rows, int64_t columns, double* to,
                     int64_t to_stride);

/// Of the numbers that are multiplied in pairs of rows.
template <class T>
inline constexpr bool kInPairs = std::is_same_v<T, c10::BFloat16>;

/// `extent` as the depth of a product: what is added must be zero in one operand and finite in the other.
template <class T>
constexpr int64_t padded_depth(int64_t extent) {
  return kInPairs<T> ? (extent + 1) / 2 * 2 : extent;
}

/// Elements of a matrix [rows, columns] in pairs of rows: [ceil(rows / 2)][columns][2].
constexpr int64_t pairs_size(int64_t rows, int64_t columns) {
  return padded_depth<c10::BFloat16>(rows) * columns;
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

/// transpose_block() of rows that are a product's depth: to [columns, padded_depth(rows)], zeros at the ends.
template <class T>
void transpose_padded(const T* from, int64_t from_stride, int64_t rows, int64_t columns, T* to, int64_t to_stride) {
  transpose_block(from, from_stride, rows, columns, to, to_stride);
  if (padded_depth<T>(rows) > rows) {
    for (int64_t column = 0; column < columns; ++column) {
      to[column * to_stride + rows] = T(0);
    }
  }
}

/// Columns of a panel. With a power of two of bytes between its rows, a whole matrix would lie in few sets of a cache.
template <class T>
constexpr int64_t kPanelColumns = sizeof(T) == 4 ? 192 : 256;

/// Rows of a panel that a product takes at a time (288-384 KiB): they stay in the second-level cache. Even.
template <class T>
constexpr int64_t kPanelDepth = 1536 / sizeof(T);

inline int64_t num_blocks(int64_t extent, int64_t block) {
  return (extent + block - 1) / block;
}

inline Range block_range(int64_t index, int64_t block, int64_t extent) {
  return {index * block, std::min((index + 1) * block, extent)};
}

/// Elements of a matrix [depth, columns] in panels.
inline int64_t panels_size(int64_t depth, int64_t columns, at::ScalarType type) {
  const int64_t width = type == at::kFloat ? kPanelColumns<float> : kPanelColumns<c10::BFloat16>;
  return num_blocks(columns, width) * width * ((depth + 1) / 2 * 2);
}

/// matrix [depth, columns] in panels: [panels, depth (made even), kPanelColumns], in bf16 with each two rows in pairs
/// (pack_pairs()). fp32 or bf16, contiguous, on the host. Written into `reuse` if that is what an earlier call for this
/// shape gave, else (undefined) into a new tensor.
at::Tensor pack_panels(const at::Tensor& matrix, const at::Tensor& reuse = {});

/// The same of the transpose of matrix [columns, depth].
at::Tensor pack_transposed_panels(const at::Tensor& matrix, const at::Tensor& reuse = {});

/// Row `row` (even) of a panel.
template <class T>
const T* panel_rows(const at::Tensor& panels, int64_t panel, int64_t row) {
  return panels.const_data_ptr<T>() + (panel * panels.size(1) + row) * kPanelColumns<T>;
}

/// A weight [M, K] and copies of it, each made when first needed and made again for another version of its values.
class PackedWeight {
 public:
  /// `weight` is a contiguous view that lives on.
  explicit PackedWeight(at::Tensor weight) : weight_(std::move(weight)) {}

  const at::Tensor& weight() const { return weight_; }
  /// What blocked_forward() takes.
  const at::Tensor& forward_panels(int64_t version);
  /// What blocked_backward_input() takes.
  const at::Tensor& backward_panels(int64_t version);
  /// The weight in fp32, with copies of its own.
  PackedWeight& in_fp32(int64_t version);

 private:
  struct Copy {
    at::Tensor values;
    int64_t version = -1;
  };

  at::Tensor weight_;
  Copy forward_;
  Copy backward_;
  std::unique_ptr<PackedWeight> in_fp32_;
  int64_t fp32_version_ = -1;
};

}  // namespace vit_hybrid::kernels
