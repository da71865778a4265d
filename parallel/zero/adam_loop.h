// adam_loop(): Adam over plain arrays on the host.
#pragma once

#include <cstdint>

#include "parallel/zero/adam_kernel.h"

namespace vit_hybrid::zero {

/// adam_element() for each of `count` elements; the arrays do not overlap. The bits do not depend on where a stretch is
/// cut, so neither on threads nor on shards.
void adam_loop(float* weights, float* exp_avg, float* exp_avg_sq, const float* gradients, int64_t count,
               const AdamCoefficients<float>& coefficients);
void adam_loop(double* weights, double* exp_avg, double* exp_avg_sq, const double* gradients, int64_t count,
               const AdamCoefficients<double>& coefficients);

}  // namespace vit_hybrid::zero
