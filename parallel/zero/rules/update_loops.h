// The optimizers' arithmetic for one element (Adam's is adam_kernel.h) and loops over flat arrays of the host.
#pragma once

#include <cmath>
#include <cstdint>

#include "parallel/zero/rules/adam_kernel.h"
#include "src/base/instruction_sets.h"

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

// Arrays of `count` elements that do not overlap. The bits do not depend on where a stretch is cut, so neither on
// threads nor on shards.

/// adam_element() for each element.
template <class T>
void adam_loop(T* weights, T* exp_avg, T* exp_avg_sq, const T* gradients, int64_t count, const AdamCoefficients<T>& c);

/// momentum_element() and plain_element() for each element.
template <class T>
void momentum_loop(T* weights, T* buffer, const T* gradients, int64_t count, const MomentumCoefficients<T>& c);
template <class T>
void plain_loop(T* weights, const T* gradients, int64_t count, const MomentumCoefficients<T>& c);

/// The sum of the squares in double, on this thread, in an order that depends on `count` alone.
template <class T>
double square_loop(const T* values, int64_t count);

/// Two sums of squares over some elements.
struct SquareSums {
  double weights = 0.0;
  double update = 0.0;
  SquareSums& operator+=(const SquareSums& other);
};

/// update_moments() for each element, and the sums of weights and updates on this thread.
template <class T>
SquareSums lamb_prepare_loop(const T* weights, T* exp_avg, T* exp_avg_sq, const T* gradients, int64_t count,
                             const LambCoefficients<T>& c);
/// Subtracts step_size times lamb_update() from each weight.
template <class T>
void lamb_apply_loop(T* weights, const T* exp_avg, const T* exp_avg_sq, int64_t count, const LambCoefficients<T>& c);

}  // namespace vit_hybrid::zero
