// IncrementTarget: models that predict how the state changes, not the next state itself.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include "data/datasets/normalization.h"

namespace vit_hybrid::data {

/// Of the channels c that are taken and predicted the target is y = (x(t + lead) - x(t) - m_c) / s_c, with normalized
/// states x and the mean m and deviation s of their increments (R. Lam et al., GraphCast, Science 2023, supplement
/// 2.2); of the channels behind them (diagnostics) it is x(t + lead).
class IncrementTarget {
 public:
  /// Targets are states.
  IncrementTarget() = default;
  /// Both in the units of the data, by channel: of increments over one lead, and of the states that these are of.
  IncrementTarget(const Normalization& increments, const Normalization& states);

  /// False where targets are states.
  explicit operator bool() const { return mean_.defined(); }
  /// For tensors of this kind.
  IncrementTarget to(c10::Device device, at::ScalarType type) const;

  /// y of the next states [B, C, H, W] and the present ones, of which the first channels count; a tensor of its own.
  at::Tensor target(const at::Tensor& next, const at::Tensor& present) const;
  /// The next states of a prediction y; a tensor of its own.
  at::Tensor state(const at::Tensor& prediction, const at::Tensor& present) const;

 private:
  at::Tensor mean_;  // [P, 1, 1]
  at::Tensor std_;
};

}  // namespace vit_hybrid::data
