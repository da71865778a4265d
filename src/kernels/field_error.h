// The difference between predicted and true fields, read straight from the patches of the forecast head.
#pragma once

#include <ATen/core/Tensor.h>

#include "src/kernels/patch_grid.h"

namespace vit_hybrid::kernels {

// prediction: patches [B, P, features] of a grid, contiguous. fields [B, C, H, W]: the truth, contiguous, fp32 (fp64
// for fp64), whatever half-length type the prediction has. Differences are fp32 (fp64), all else is double. On the host
// each byte passes memory once, and the bits do not depend on the number of threads.

/// [2, B], double: the sums over a sample of (prediction - truth)^2 and of truth^2.
at::Tensor field_squares(const at::Tensor& prediction, const at::Tensor& fields, const PatchGrid& grid);

/// (prediction - truth) factors[n] for each sample n, rounded once; like prediction. factors [B], double.
at::Tensor field_gradient(const at::Tensor& prediction, const at::Tensor& fields, const PatchGrid& grid,
                          const at::Tensor& factors);

}  // namespace vit_hybrid::kernels
