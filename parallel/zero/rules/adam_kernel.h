// The arithmetic of Adam's family for one element and its coefficients of a step, for host loops and device kernels
// alike.
#pragma once

#include <cmath>

#include "parallel/zero/optimizer_options.h"
#include "parallel/zero/step_scalars.h"
#include "src/base/instruction_sets.h"

namespace vit_hybrid::zero {

/// The scalars of one step that all rules with these moments share, in the type of the master weights.
template <class T>
struct MomentCoefficients {
  T gradient_scale;  ///< gradients are multiplied with it (clipping, loss scale)
  T beta1;
  T one_minus_beta1;
  T beta2;
  T one_minus_beta2;
  T root_scale;  ///< 1 / sqrt(1 - beta2^t)
  T eps;         ///< added to the corrected root, as torch.optim has it
};

/// Updates the moments of one weight by a gradient that is scaled already: D. P. Kingma and J. Ba, "Adam", ICLR 2015,
/// algorithm 1.
template <class T>
VH_HOST_DEVICE inline void update_moments(T& exp_avg, T& exp_avg_sq, T gradient, const MomentCoefficients<T>& c) {
  exp_avg = c.beta1 * exp_avg + c.one_minus_beta1 * gradient;
  exp_avg_sq = c.beta2 * exp_avg_sq + c.one_minus_beta2 * gradient * gradient;
}

/// The scalars of one step, in the type of the master weights.
template <class T>
struct AdamCoefficients : MomentCoefficients<T> {
  T step_size;       ///< lr / (1 - beta1^t)
  T weight_factor;   ///< decoupled decay (AdamW): 1 - lr weight_decay; else 1
  T gradient_decay;  ///< decay as part of the gradient (Adam): weight_decay; else 0
};

/// How a step takes the weight decay of an element.
struct AdamDecay {
  double lr;
  bool decoupled;  ///< as AdamW has it
};

/// Sets the two coefficients that depend on the weight decay.
template <class T>
VH_HOST_DEVICE inline void set_weight_decay(AdamCoefficients<T>& c, const AdamDecay& decay, double weight_decay) {
  c.weight_factor = static_cast<T>(decay.decoupled ? 1.0 - decay.lr * weight_decay : 1.0);
  c.gradient_decay = static_cast<T>(decay.decoupled ? 0.0 : weight_decay);
}

/// Updates one weight and its moments: D. P. Kingma and J. Ba, "Adam", ICLR 2015, algorithm 1; decoupled decay:
/// I. Loshchilov and F. Hutter, ICLR 2019, algorithm 2.
template <class T>
VH_HOST_DEVICE inline void adam_element(T& weight, T& exp_avg, T& exp_avg_sq, T gradient,
                                        const AdamCoefficients<T>& c) {
  update_moments(exp_avg, exp_avg_sq, gradient * c.gradient_scale + c.gradient_decay * weight, c);
  weight = c.weight_factor * weight - c.step_size * exp_avg / (std::sqrt(exp_avg_sq) * c.root_scale + c.eps);
}

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
