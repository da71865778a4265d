// The error of predicted patches against fields, and its gradient, without the fields of the prediction ever being
// made.
#pragma once

#include <ATen/core/Tensor.h>

#include "src/kernels/patch_grid.h"

namespace vit_hybrid::kernels {

// prediction: patches [B, P, ph pw C] of a grid, the features of each over (row, column, channel), contiguous. fields
// [B, C, H, W]: the truth, contiguous, fp32 (fp64 for fp64), whatever half-length type the prediction has. Padded
// pixels add nothing, and their gradient is zero. Differences are fp32 (fp64), all else is double. On the host each
// byte passes memory once, and the bits do not depend on the number of threads.

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
