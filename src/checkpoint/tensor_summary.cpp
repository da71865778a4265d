// Loops over the values of tensors.
#include "src/checkpoint/tensor_summary.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "src/base/error.h"
#include "src/base/text.h"

namespace vit_hybrid::train {

namespace {

// Calls `use(pointer, count)` with the tensor's own type.
template <class Use>
void with_values(const at::Tensor& values, const Use& use) {
  VH_ASSERT(values.is_cpu() && values.is_contiguous(), "a contiguous host tensor");
  if (values.scalar_type() == at::kFloat) {
    use(values.const_data_ptr<float>(), values.numel());
    return;
  }
  VH_ASSERT(values.scalar_type() == at::kDouble, str("values of type ", c10::toString(values.scalar_type())));
  use(values.const_data_ptr<double>(), values.numel());
}

template <class T>
TensorSummary summary_of(const T* values, int64_t count) {
  TensorSummary summary;
  summary.count = count;
  summary.least = std::numeric_limits<double>::infinity();
  summary.most = -summary.least;
  double sum = 0.0;
  for (int64_t i = 0; i < count; ++i) {
    const double value = values[i];
    if (!std::isfinite(value)) {
      ++summary.num_not_finite;
      continue;
    }
    sum += value;
    summary.least = std::min(summary.least, value);
    summary.most = std::max(summary.most, value);
  }
  const int64_t num_finite = count - summary.num_not_finite;
  if (num_finite == 0) {
    summary.least = summary.most = 0.0;
    return summary;
  }
  summary.mean = sum / static_cast<double>(num_finite);
  double squares = 0.0;
  for (int64_t i = 0; i < count; ++i) {
    const double distance = std::isfinite(values[i]) ? values[i] - summary.mean : 0.0;
    squares += distance * distance;
  }
  summary.deviation = std::sqrt(squares / static_cast<double>(num_finite));
  return summary;
}

void note(int64_t index, double a, double b, TensorDifference& difference) {
  if (difference.num_different++ == 0) {
    difference.first_index = index;
    difference.first_a = a;
    difference.first_b = b;
  }
  const bool finite = std::isfinite(a) && std::isfinite(b);
  const double absolute = finite ? std::abs(a - b) : std::numeric_limits<double>::infinity();
  const double larger = std::max(std::abs(a), std::abs(b));
  const double relative = !finite ? absolute : larger > 0.0 ? absolute / larger : 0.0;
  difference.largest_absolute = std::max(difference.largest_absolute, absolute);
  difference.largest_relative = std::max(difference.largest_relative, relative);
}

}  // namespace

TensorSummary summarize(const at::Tensor& values) {
  TensorSummary summary;
  with_values(values, [&](const auto* data, int64_t count) { summary = summary_of(data, count); });
  return summary;
}

TensorDifference difference_of(const at::Tensor& a, const at::Tensor& b) {
  VH_ASSERT(a.sizes() == b.sizes(), "tensors of one shape");
  TensorDifference difference;
  difference.count = a.numel();
  with_values(a, [&](const auto* of_a, int64_t count) {
    with_values(b, [&](const auto* of_b, int64_t) {
      for (int64_t i = 0; i < count; ++i) {
        const double value_a = of_a[i];
        const double value_b = of_b[i];
        if (std::bit_cast<uint64_t>(value_a) != std::bit_cast<uint64_t>(value_b)) {
          note(i, value_a, value_b, difference);
        }
      }
    });
  });
  return difference;
}

}  // namespace vit_hybrid::train
