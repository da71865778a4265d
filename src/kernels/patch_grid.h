// PatchGrid: how a field is cut into patches, and fields from the patches that the forecast head gives.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace vit_hybrid::kernels {

/// A field [channels, rows patch, columns patch] as [rows columns, patch patch channels]: the patches row by row, the
/// features of each run over (row, column, channel) with the channel fastest.
struct PatchGrid {
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t patch = 0;
  int64_t channels = 0;

  int64_t num_patches() const { return rows * columns; }
  int64_t num_features() const { return patch * patch * channels; }
  int64_t height() const { return rows * patch; }
  int64_t width() const { return columns * patch; }
};

/// The grid of patches [B, P, features] of fields [B, C, H, W]; one that does not fit is a broken invariant.
PatchGrid grid_of(const at::Tensor& patches, const at::Tensor& fields);

/// Patches [B, P, features] as fields [B, C, H, W], a copy.
at::Tensor unpatchify(const at::Tensor& patches, const PatchGrid& grid);

}  // namespace vit_hybrid::kernels
