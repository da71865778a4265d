// Panels: a matrix cut into blocks of columns, each contiguous: the right factor of the blocked products.
#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstdint>

#include "src/base/partition.h"

namespace vit_hybrid::kernels {

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

}  // namespace vit_hybrid::kernels
