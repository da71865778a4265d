// The coefficients of a step of Adam or AdamW, for host loops and the device's kernel alike.
#pragma once

#include "parallel/zero/optimizer_options.h"
#include "parallel/zero/rules/adam_kernel.h"
#include "parallel/zero/rules/moment_coefficients.h"
#include "parallel/zero/step_scalars.h"

namespace vit_hybrid::zero {

/// What stays for a run.
template <class T>
struct AdamConstants {
  AdamCoefficients<T> coefficients;  ///< without those of a step
  bool decoupled;                    ///< see AdamDecay
};

template <class T>
AdamConstants<T> adam_constants(const OptimizerOptions& options) {
  AdamConstants<T> constants{};
  set_betas(constants.coefficients, options);
  constants.decoupled = options.kind == OptimizerKind::kAdamW;
  return constants;
}

/// The coefficients of a step but for the two that depend on the weight decay, rounded once to the type of the master
/// weights.
template <class T>
VH_HOST_DEVICE inline AdamCoefficients<T> adam_coefficients(const AdamConstants<T>& constants,
                                                            const StepScalars& step) {
  AdamCoefficients<T> c = constants.coefficients;
  set_moments_of_step(c, step);
  c.step_size = static_cast<T>(step.step_size);
  return c;
}

/// How the step takes weight decay.
template <class T>
VH_HOST_DEVICE inline AdamDecay adam_decay(const AdamConstants<T>& constants, const StepScalars& step) {
  return {step.lr, constants.decoupled};
}

}  // namespace vit_hybrid::zero
