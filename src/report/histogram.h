// Histogram: how the values of a tensor are spread, over TensorBoard's buckets, which are the same for every tensor.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace vit_hybrid::train {

/// Upper ends of the buckets, ascending: 1e-12 x 1.1^i below 1e20 with both signs, 0, and the largest double. A bucket
/// has the values from the end of the one before it, which it includes, to its own, which it does not; the first and
/// the last also those beyond. The rule of TensorFlow's tensorflow/core/lib/histogram/histogram.cc.
const std::vector<double>& bucket_limits();

/// The bucket of a value that is no NaN.
size_t bucket_of(double value);

/// What is known of the values that were counted. All but `counts` is of no bucket: of the values themselves.
struct Histogram {
  double least = std::numeric_limits<double>::infinity();
  double most = -std::numeric_limits<double>::infinity();
  double sum = 0.0;
  double sum_of_squares = 0.0;
  int64_t not_finite = 0;  ///< values that are in none of the other figures
  std::vector<int64_t> counts = std::vector<int64_t>(bucket_limits().size());

  /// Values that were finite.
  int64_t size() const;
};

/// Counts the values of a flat tensor of a floating-point type, each multiplied by `factor`. Those of a GPU are copied
/// to the host in pieces. Counts, `least` and `most` do not depend on how values are cut into calls; the sums, in
/// double, depend on it by rounding, and on nothing else.
void count(const at::Tensor& values, double factor, Histogram& histogram);

/// The histograms of one parameter, over the whole tensor.
struct ParameterHistograms {
  std::string name;  ///< as checkpoints have it
  Histogram weights;
  Histogram gradient;
};

}  // namespace vit_hybrid::train
