// The coefficients of the moments in one step.
#pragma once

#include <cmath>

#include "parallel/zero/moment_kernel.h"
#include "parallel/zero/update_rule.h"

namespace vit_hybrid::zero {

/// 1 - beta^t: the share of its expectation that a moment, which starts from zero, has at step t.
inline double bias_correction(double beta, int64_t t) {
  return 1.0 - std::pow(beta, static_cast<double>(t));
}

/// Made in double, and rounded once to the type of the master weights.
template <class T>
void set_moments(MomentCoefficients<T>& c, const OptimizerOptions& options, const StepScalars& step) {
  c.gradient_scale = static_cast<T>(step.gradient_scale);
  c.beta1 = static_cast<T>(options.beta1);
  c.one_minus_beta1 = static_cast<T>(1.0 - options.beta1);
  c.beta2 = static_cast<T>(options.beta2);
  c.one_minus_beta2 = static_cast<T>(1.0 - options.beta2);
  c.root_scale = static_cast<T>(1.0 / std::sqrt(bias_correction(options.beta2, step.number)));
  c.eps = static_cast<T>(options.eps);
}

}  // namespace vit_hybrid::zero
