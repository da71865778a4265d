// The error of predicted patches against fields, and its gradient, without the fields of the prediction ever being
// made.
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

// prediction: patches [B, P, features] of a grid, contiguous. fields [B, C, H, W]: the truth, contiguous, fp32 (fp64
// for fp64), whatever half-length type the prediction has. Differences are fp32 (fp64), all else is double. On the host
// each byte passes memory once, and the bits do not depend on the number of threads.

/// [2, B], double: the sums over a sample of (prediction - truth)^2 and of truth^2.
at::Tensor field_squares(const at::Tensor& prediction, const at::Tensor& fields, const PatchGrid& grid);

/// (prediction - truth) factors[n] for each sample n, rounded once; like prediction. factors [B], double.
at::Tensor field_gradient(const at::Tensor& prediction, const at::Tensor& fields, const PatchGrid& grid,
                          const at::Tensor& factors);

// For tensors that are not on the host, which the functions above call; in programs without CUDA there are none.
// Nothing here waits for the device.

at::Tensor device_field_squares(const at::Tensor& patches, const at::Tensor& fields, const PatchGrid& grid);
at::Tensor device_field_gradient(const at::Tensor& patches, const at::Tensor& fields, const PatchGrid& grid,
                                 const at::Tensor& factors);

}  // namespace vit_hybrid::kernels
