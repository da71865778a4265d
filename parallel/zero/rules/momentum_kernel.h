// The arithmetic of SGD with momentum and of LARS for one element, for host loops and device kernels alike.
#pragma once

#include "src/base/host_device.h"

namespace vit_hybrid::zero {

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

}  // namespace vit_hybrid::zero
