// From states to increments and back.
#include "data/datasets/increment_target.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/tensor.h>

#include "src/base/error.h"

namespace vit_hybrid::data {

IncrementTarget::IncrementTarget(const Normalization& increments, const Normalization& states) {
  VH_ASSERT(increments.mean.size() == states.mean.size(), "increments and states of the same channels");
  const at::Tensor scale = at::tensor(states.std, at::kDouble).reshape({-1, 1, 1});
  mean_ = at::tensor(increments.mean, at::kDouble).reshape({-1, 1, 1}) / scale;
  std_ = at::tensor(increments.std, at::kDouble).reshape({-1, 1, 1}) / scale;
}

IncrementTarget IncrementTarget::to(c10::Device device, at::ScalarType type) const {
  IncrementTarget moved;
  if (*this) {
    moved.mean_ = mean_.to(device, type);
    moved.std_ = std_.to(device, type);
  }
  return moved;
}

at::Tensor IncrementTarget::target(const at::Tensor& next, const at::Tensor& present) const {
  const int64_t channels = mean_.size(0);
  at::Tensor out = next.clone();
  out.narrow(1, 0, channels).sub_(present.narrow(1, 0, channels)).sub_(mean_).div_(std_);
  return out;
}

at::Tensor IncrementTarget::state(const at::Tensor& prediction, const at::Tensor& present) const {
  const int64_t channels = mean_.size(0);
  at::Tensor out = prediction.clone();
  out.narrow(1, 0, channels).mul_(std_).add_(mean_).add_(present.narrow(1, 0, channels));
  return out;
}

}  // namespace vit_hybrid::data
