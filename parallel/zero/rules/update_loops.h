// The optimizers' loops over flat arrays of the host.
#pragma once

#include <cstdint>

#include "parallel/zero/rules/step_arithmetic.h"

namespace vit_hybrid::zero {

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
