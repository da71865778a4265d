// The arithmetic of Adam for one element, for host loops and device kernels alike.
#pragma once

#include <cmath>

#include "parallel/zero/rules/moment_kernel.h"
#include "src/base/host_device.h"

namespace vit_hybrid::zero {

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

}  // namespace vit_hybrid::zero
