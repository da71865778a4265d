// The arithmetic of LAMB for one element, for host loops and device kernels alike.
#pragma once

#include <cmath>

#include "src/base/host_device.h"

namespace vit_hybrid::zero {

/// The scalars of one step and stretch, in the type of the master weights.
template <class T>
struct LambCoefficients {
  T gradient_scale;  ///< gradients are multiplied with it (clipping, loss scale)
  T beta1;
  T one_minus_beta1;
  T beta2;
  T one_minus_beta2;
  T mean_scale;  ///< 1 / (1 - beta1^t)
  T root_scale;  ///< 1 / sqrt(1 - beta2^t)
  T eps;
  T weight_decay;
  T step_size;  ///< lr times the trust ratio
};

/// Updates the moments of one weight.
template <class T>
VH_HOST_DEVICE inline void lamb_moments(T& exp_avg, T& exp_avg_sq, T gradient, const LambCoefficients<T>& c) {
  gradient = gradient * c.gradient_scale;
  exp_avg = c.beta1 * exp_avg + c.one_minus_beta1 * gradient;
  exp_avg_sq = c.beta2 * exp_avg_sq + c.one_minus_beta2 * gradient * gradient;
}

/// What the step is a multiple of: Adam's direction, and the decay.
template <class T>
VH_HOST_DEVICE inline T lamb_update(T weight, T exp_avg, T exp_avg_sq, const LambCoefficients<T>& c) {
  return c.mean_scale * exp_avg / (std::sqrt(exp_avg_sq) * c.root_scale + c.eps) + c.weight_decay * weight;
}

}  // namespace vit_hybrid::zero
