// GELU's arithmetic for one element, of the exact one (erf): for host loops and device kernels alike.
#pragma once

#include <cmath>

#include "src/base/instruction_sets.h"

namespace vit_hybrid::kernels {

/// Phi(z) and phi(z) of the normal distribution.
template <class Real>
struct Normal {
  Real distribution;
  Real density;
};

/// With the library's erfc: off by a few units in the last place.
template <class Real>
VH_HOST_DEVICE inline Normal<Real> exact_normal(Real z) {
  constexpr Real kInverseSqrt2 = static_cast<Real>(0.70710678118654752440);
  constexpr Real kInverseSqrt2Pi = static_cast<Real>(0.39894228040143267794);
  return {static_cast<Real>(0.5) * std::erfc(-z * kInverseSqrt2),
          kInverseSqrt2Pi * std::exp(static_cast<Real>(-0.5) * z * z)};
}

/// The functions of the host that quick_normal() uses; device code has faster ones.
struct HostFunctions {
  static float exp(float x) { return std::exp(x); }
  static float reciprocal(float x) { return 1.0f / x; }
};

/// For results in half precision: Phi is off by less than 3e-7 (M. Abramowitz, I. Stegun, Handbook of Mathematical
/// Functions, 1964, equation 7.1.26, whose exponential is phi's), at a third of the instructions, so that kernels keep
/// up with the memory.
template <class Functions>
VH_HOST_DEVICE inline Normal<float> quick_normal(float z) {
  const float x = std::fabs(z) * 0.70710678f;
  const float exponential = Functions::exp(-x * x);
  const float t = Functions::reciprocal(1.0f + 0.3275911f * x);
  const float series =
      t * (0.254829592f + t * (-0.284496736f + t * (1.421413741f + t * (-1.453152027f + t * 1.061405429f))));
  const float tail = 0.5f * series * exponential;  // Phi(-|z|)
  return {z < 0.0f ? tail : 1.0f - tail, 0.39894228f * exponential};
}

/// z Phi(z) (D. Hendrycks, K. Gimpel, "Gaussian Error Linear Units", 2016, section 2).
template <class Real>
VH_HOST_DEVICE inline Real gelu_value(Real z, const Normal<Real>& normal) {
  return z * normal.distribution;
}

/// Phi(z) + z phi(z).
template <class Real>
VH_HOST_DEVICE inline Real gelu_slope(Real z, const Normal<Real>& normal) {
  return normal.distribution + z * normal.density;
}

}  // namespace vit_hybrid::kernels
