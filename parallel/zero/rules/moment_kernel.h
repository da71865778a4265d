// The moments of Adam's family for one element, for host loops and device kernels alike.
#pragma once

#include "src/base/host_device.h"

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

}  // namespace vit_hybrid::zero
