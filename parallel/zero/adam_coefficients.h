// The coefficients of a step of Adam or AdamW, for host loops and the device's kernel alike.
#pragma once

#include "parallel/zero/adam_kernel.h"
#include "parallel/zero/moment_coefficients.h"
#include "parallel/zero/update_rule.h"

namespace vit_hybrid::zero {

/// How the step takes weight decay.
inline AdamDecay adam_decay(const OptimizerOptions& options, const StepScalars& step) {
  return {step.lr, options.kind == OptimizerKind::kAdamW};
}

/// Made in double, and rounded once to the type of the master weights.
template <class T>
AdamCoefficients<T> adam_coefficients(const OptimizerOptions& options, const StepScalars& step, double weight_decay) {
  AdamCoefficients<T> c{};
  set_moments(c, options, step);
  c.step_size = static_cast<T>(step.lr / bias_correction(options.beta1, step.number));
  set_weight_decay(c, adam_decay(options, step), weight_decay);
  return c;
}

}  // namespace vit_hybrid::zero
