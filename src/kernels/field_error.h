// The error of predicted patches against fields, and its gradient, without the fields of the prediction ever being
// made.
#pragma once

#include <ATen/core/Tensor.h>

#include "src/kernels/field_error_cuda.h"
#include "src/kernels/patch_grid.h"

namespace vit_hybrid::kernels {

// prediction: patches [B, P, ph pw C] of a grid, the features of each over (row, column, channel), contiguous. fields
// [B, C, H, W]: the truth, contiguous, fp32 (fp64 for fp64), whatever half-length type the prediction has. Padded
// pixels add nothing, and their gradient is zero. Differences are fp32 (fp64), all else is double. On the host each
// byte passes memory once, and the bits do not depend on the number of threads.

/// What each value of a field counts, the product of the two: double, contiguous, where the prediction lies; undefined
/// for ones.
struct FieldWeights {
  at::Tensor rows;      ///< [H]
  at::Tensor channels;  ///< [C]

  bool is_defined() const { return rows.defined() || channels.defined(); }
};

/// How errors are measured.
struct FieldMeasure {
  ErrorPower power = ErrorPower::kSquare;
  FieldWeights weights = {};
};

/// [2, B], double: the sums over a sample of w |prediction - truth|^p and of w |truth|^p, p being 2 or 1.
at::Tensor field_sums(const at::Tensor& prediction, const at::Tensor& fields, const PatchGrid& grid,
                      const FieldMeasure& measure = {});

/// w (prediction - truth) factors[n] for each sample n, of absolute errors w sign(prediction - truth) factors[n],
/// rounded once; like prediction. factors [B], double.
at::Tensor field_gradient(const at::Tensor& prediction, const at::Tensor& fields, const PatchGrid& grid,
                          const at::Tensor& factors, const FieldMeasure& measure = {});

// For tensors that are not on the host, which the functions above call; in programs without CUDA there are none.
// Nothing here waits for the device.

at::Tensor device_field_sums(const at::Tensor& patches, const at::Tensor& fields, const PatchGrid& grid,
                             const FieldMeasure& measure);
at::Tensor device_field_gradient(const at::Tensor& patches, const at::Tensor& fields, const PatchGrid& grid,
                                 const at::Tensor& factors, const FieldMeasure& measure);

}  // namespace vit_hybrid::kernels
