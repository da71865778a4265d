// The coefficients of the moments in one step, for host loops and device kernels alike.
#pragma once

#include "parallel/zero/optimizer_options.h"
#include "parallel/zero/rules/moment_kernel.h"
#include "parallel/zero/step_scalars.h"

namespace vit_hybrid::zero {

// Each is rounded once from double to the type of the master weights.

/// Those that stay for a run.
template <class T>
void set_betas(MomentCoefficients<T>& c, const OptimizerOptions& options) {
  c.beta1 = static_cast<T>(options.beta1);
  c.one_minus_beta1 = static_cast<T>(1.0 - options.beta1);
  c.beta2 = static_cast<T>(options.beta2);
  c.one_minus_beta2 = static_cast<T>(1.0 - options.beta2);
  c.eps = static_cast<T>(options.eps);
}

/// Those of a step.
template <class T>
VH_HOST_DEVICE inline void set_moments_of_step(MomentCoefficients<T>& c, const StepScalars& step) {
  c.gradient_scale = static_cast<T>(step.gradient_scale);
  c.root_scale = static_cast<T>(step.root_scale);
}

}  // namespace vit_hybrid::zero
