// The arithmetic of LAMB for one element, for host loops and device kernels alike.
#pragma once

#include <cmath>

#include "parallel/zero/rules/moment_kernel.h"
#include "src/base/host_device.h"

namespace vit_hybrid::zero {

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
