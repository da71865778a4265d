// Figures of one tensor's values, and of the differences between two. Pure.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace vit_hybrid::train {

/// Of the finite values (0 without any); the mean and deviation are of double precision.
struct TensorSummary {
  int64_t count = 0;
  int64_t num_not_finite = 0;
  double least = 0.0;
  double most = 0.0;
  double mean = 0.0;
  double deviation = 0.0;
};

/// Of a contiguous host tensor of float32 or float64.
TensorSummary summarize(const at::Tensor& values);

/// How two tensors of one shape differ. Values are equal if their bits are, in float64 where the types differ.
struct TensorDifference {
  int64_t count = 0;
  int64_t num_different = 0;
  int64_t first_index = -1;  ///< of the first value that differs, row-major; -1 without one
  double first_a = 0.0;
  double first_b = 0.0;
  double largest_absolute = 0.0;  ///< of |a - b|; infinite where one of the two is not finite
  double largest_relative = 0.0;  ///< of |a - b| / max(|a|, |b|)
};

/// Of two contiguous host tensors of float32 or float64.
TensorDifference difference_of(const at::Tensor& a, const at::Tensor& b);

}  // namespace vit_hybrid::train
