// The coefficients of a step of Adam or AdamW, for host loops and the device's kernel alike.
#pragma once

#include <cmath>

#include "parallel/zero/adam_kernel.h"
#include "parallel/zero/update_rule.h"

namespace vit_hybrid::zero {

/// How the step takes weight decay.
inline AdamDecay adam_decay(const OptimizerOptions& options, const StepScalars& step) {
  return {step.lr, options.kind == OptimizerKind::kAdamW};
}

/// Made in double, and rounded once to the type of the master weights.
template <class T>
AdamCoefficients<T> adam_coefficients(const OptimizerOptions& options, const StepScalars& step, double weight_decay) {
  const auto number = static_cast<double>(step.number);
  AdamCoefficients<T> c{};
  c.gradient_scale = static_cast<T>(step.gradient_scale);
  c.beta1 = static_cast<T>(options.beta1);
  c.one_minus_beta1 = static_cast<T>(1.0 - options.beta1);
  c.beta2 = static_cast<T>(options.beta2);
  c.one_minus_beta2 = static_cast<T>(1.0 - options.beta2);
  c.step_size = static_cast<T>(step.lr / (1.0 - std::pow(options.beta1, number)));
  c.root_scale = static_cast<T>(1.0 / std::sqrt(1.0 - std::pow(options.beta2, number)));
  c.eps = static_cast<T>(options.eps);
  set_weight_decay(c, adam_decay(options, step), weight_decay);
  return c;
}

}  // namespace vit_hybrid::zero
