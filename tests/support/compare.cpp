// Errors of whole tensors.
#include "tests/support/compare.h"

#include <ATen/ops/cat.h>

#include <algorithm>
#include <limits>

namespace vit_hybrid::testing {

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// NaN if there is one, as max() hands it on.
double largest(const at::Tensor& x) {
  return x.numel() == 0 ? 0.0 : x.abs().max().item<double>();
}

double measured_against(const at::Tensor& a, const at::Tensor& reference, double scale) {
  if (a.sizes() != reference.sizes()) {
    return kInfinity;
  }
  const double difference = largest(a.to(at::kDouble).sub(reference.to(at::kDouble)));
  if (difference == 0.0) {
    return 0.0;
  }
  const double error = difference / scale;
  return error <= std::numeric_limits<double>::max() ? error : kInfinity;
}

bool is_qkv_bias(const std::string& name) {
  return name.ends_with("qkv.bias");
}

at::Tensor third(const at::Tensor& x, int64_t i) {
  return x.narrow(0, i * (x.size(0) / 3), x.size(0) / 3);
}

at::Tensor without_keys(const at::Tensor& x) {
  return at::cat({third(x, 0), third(x, 2)});
}

}  // namespace

double relative_error(const at::Tensor& a, const at::Tensor& reference) {
  return measured_against(a, reference, largest(reference.to(at::kDouble)));
}

double gradient_error(const std::string& name, const at::Tensor& a, const at::Tensor& reference) {
  if (!is_qkv_bias(name) || a.sizes() != reference.sizes()) {
    return relative_error(a, reference);
  }
  const double of_keys =
      measured_against(third(a, 1), third(reference, 1), largest(third(reference, 0).to(at::kDouble)));
  return std::max(of_keys, relative_error(without_keys(a), without_keys(reference)));
}

double parameter_error(const std::string& name, const at::Tensor& a, const at::Tensor& reference, double learning_rate,
                       int64_t steps) {
  if (!is_qkv_bias(name) || a.sizes() != reference.sizes()) {
    return relative_error(a, reference);
  }
  const double moved = learning_rate * static_cast<double>(steps);
  if (!(measured_against(third(a, 1), third(reference, 1), moved) <= 2.0)) {
    return kInfinity;
  }
  return relative_error(without_keys(a), without_keys(reference));
}

}  // namespace vit_hybrid::testing
