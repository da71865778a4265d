// The arithmetic of an optimizer step for one element, and the step's numbers: for host loops and device kernels alike.
#pragma once

#include <cmath>
#include <limits>

#include "parallel/zero/optimizer_options.h"
#include "src/base/instruction_sets.h"

namespace vit_hybrid::zero {

/// What changes from step to step. Doubles alone, so that they lie in a tensor of any device (StepControl), where
/// kernels, recorded ones too, find those of the present step.
struct StepScalars {
  // What the host knows when the step begins.
  double lr = 0.0;
  double step_size = 0.0;   ///< lr / (1 - beta1^t)
  double mean_scale = 1.0;  ///< 1 / (1 - beta1^t)
  double root_scale = 1.0;  ///< 1 / sqrt(1 - beta2^t)
  double loss_scale = 1.0;  ///< of the gradient
  double max_norm = 0.0;    ///< of the gradient without the loss scale; 0: it is not clipped

  // Of the pass.
  double loss = 0.0;  ///< of this replica's samples, on the ranks of the last stage

  // Of the whole gradient, summed over the world.
  double squares = 0.0;     ///< of what is finite
  double not_finite = 0.0;  ///< how often something is not

  // What decide() makes of them.
  double norm = 0.0;            ///< before clipping, without the loss scale; NaN where it is not finite
  double gradient_scale = 1.0;  ///< gradients are multiplied with it
  double skip = 0.0;            ///< not 0: the gradient is not finite, and nothing may change

  VH_HOST_DEVICE bool is_skipped() const { return skip != 0.0; }
};

/// What gradients are multiplied with: min(1, max_norm / (norm + 1e-6)), as torch's clip_grad_norm_.
VH_HOST_DEVICE inline double clip_coefficient(double norm, double max_norm) {
  const double coefficient = max_norm / (norm + 1e-6);
  return coefficient < 1.0 ? coefficient : 1.0;
}

/// Norm, clipping, loss scale and whether the step is skipped, from what stands before them: one function for the host
/// and for a GPU, with the same bits.
VH_HOST_DEVICE inline void decide(StepScalars& step) {
  const bool finite = step.not_finite == 0.0 && step.squares - step.squares == 0.0;
  step.norm = (finite ? std::sqrt(step.squares) : std::numeric_limits<double>::quiet_NaN()) / step.loss_scale;
  const double clip = step.max_norm > 0.0 ? clip_coefficient(step.norm, step.max_norm) : 1.0;
  step.gradient_scale = clip / step.loss_scale;
  step.skip = finite ? 0.0 : 1.0;
}

// --- Adam ---

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

// --- SGD and LARS ---

/// The scalars of one step and stretch, in the type of the master weights.
template <class T>
struct MomentumCoefficients {
  T gradient_scale;  ///< gradients are multiplied with it (clipping, loss scale)
  T weight_decay;    ///< added to the gradient: weight_decay times the weight
  T trust;           ///< what LARS multiplies the decayed gradient with; else 1
  T momentum;
  T from_gradient;  ///< share of the gradient in the step: 1 with Nesterov's momentum, else 0
  T from_buffer;    ///< share of the buffer: `momentum` with Nesterov's, else 1
  T lr;
};

/// The decayed, scaled gradient.
template <class T>
VH_HOST_DEVICE inline T momentum_gradient(T weight, T gradient, const MomentumCoefficients<T>& c) {
  return c.trust * (gradient * c.gradient_scale + c.weight_decay * weight);
}

/// Updates one weight and its buffer, which begins as 0.
template <class T>
VH_HOST_DEVICE inline void momentum_element(T& weight, T& buffer, T gradient, const MomentumCoefficients<T>& c) {
  gradient = momentum_gradient(weight, gradient, c);
  buffer = c.momentum * buffer + gradient;
  weight -= c.lr * (c.from_gradient * gradient + c.from_buffer * buffer);
}

/// Updates one weight without momentum.
template <class T>
VH_HOST_DEVICE inline void plain_element(T& weight, T gradient, const MomentumCoefficients<T>& c) {
  weight -= c.lr * momentum_gradient(weight, gradient, c);
}

/// The scalars of one step and stretch, in the type of the master weights.
template <class T>
struct LambCoefficients : MomentCoefficients<T> {
  T mean_scale;  ///< 1 / (1 - beta1^t)
  T weight_decay;
  T step_size;  ///< lr times the trust ratio
};

/// What the step is a multiple of: Adam's direction, and the decay.
template <class T>
VH_HOST_DEVICE inline T lamb_update(T weight, T exp_avg, T exp_avg_sq, const LambCoefficients<T>& c) {
  return c.mean_scale * exp_avg / (std::sqrt(exp_avg_sq) * c.root_scale + c.eps) + c.weight_decay * weight;
}

}  // namespace vit_hybrid::zero
