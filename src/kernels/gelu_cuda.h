// GELU, its backward and sums of columns on a GPU: the arithmetic of an element, and the launches on plain arrays, each
// asynchronous on `stream`.
#pragma once

#include <cmath>
#include <cstdint>

#include "src/base/instruction_sets.h"
#include "src/kernels/element_vector.h"
#include "src/kernels/gelu.h"

struct CUstream_st;  // cudaStream_t points to it

namespace vit_hybrid::kernels {

/// Phi(z) and phi(z) of the normal distribution, or what stands for them with GeluKind::kTanh.
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

/// Functions of the standard library that the arithmetic below uses; device code has faster ones.
struct LibraryFunctions {
  template <class Real>
  VH_HOST_DEVICE static Real exp(Real x) {
    return std::exp(x);
  }
  VH_HOST_DEVICE static float power_of_two(float x) { return std::exp2(x); }
  template <class Real>
  VH_HOST_DEVICE static Real reciprocal(Real x) {
    return 1 / x;
  }
};

/// For results in half precision: Phi is off by less than 3e-7 (M. Abramowitz, I. Stegun, Handbook of Mathematical
/// Functions, 1964, equation 7.1.26 with x = |z| / sqrt(2), halved; its exponential is phi's), in so few instructions
/// that kernels keep up with the memory.
template <class Functions>
VH_HOST_DEVICE inline Normal<float> quick_normal(float z) {
  const float exponential = Functions::power_of_two(-0.72134752f * z * z);
  const float t = Functions::reciprocal(1.0f + 0.23164189f * std::fabs(z));
  const float series =
      t * (0.127414796f + t * (-0.142248368f + t * (0.7107068705f + t * (-0.7265760135f + t * 0.5307027145f))));
  const float tail = series * exponential;  // Phi(-|z|)
  return {0.5f + std::copysign(0.5f - tail, z), 0.39894228f * exponential};
}

/// With tanh, as the logistic function of twice what tanh is applied to, whose tail falls to 0 without cancellation.
template <class Functions, class Real>
VH_HOST_DEVICE inline Normal<Real> tanh_normal(Real z) {
  constexpr Real kLimit = 9;                                          // where the tail is 1e-29
  constexpr Real kScale = static_cast<Real>(1.59576912160573071176);  // 2 sqrt(2 / pi)
  constexpr Real kCubic = static_cast<Real>(0.044715);
  if (!(std::fabs(z) <= kLimit)) {  // nothing overflows, and NaN stays NaN
    return {static_cast<Real>(z < 0 ? 0 : 1), 0};
  }
  const Real square = z * z;
  const Real tail = Functions::exp(-kScale * z * (1 + kCubic * square));
  const Real distribution = Functions::reciprocal(1 + tail);
  return {distribution, kScale * (1 + 3 * kCubic * square) * (tail * distribution) * distribution};
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

// T: double, float, c10::BFloat16, c10::Half. Sums are of ComputeType<T>.

/// Parts into which `rows` rows of `columns` elements are cut, each with its own sums: enough to fill the device. A
/// function of the shape, the type and the device alone, so that the sums have the same bits each time.
int64_t num_column_sum_parts(int64_t rows, int64_t columns, int64_t element_bytes, int multiprocessors);

/// y = gelu(z), `count` elements, at least one.
template <class T>
void launch_gelu(const T* z, T* y, int64_t count, GeluKind kind, CUstream_st* stream);

/// dz = dy gelu'(z), matrices [rows, columns], not empty; and partial [parts, columns] becomes dz's sums over the rows
/// of each part, unless it is null.
template <class T>
void launch_gelu_backward(const T* dy, const T* z, T* dz, ComputeType<T>* partial, int64_t rows, int64_t columns,
                          int64_t parts, GeluKind kind, CUstream_st* stream);

/// partial [parts, columns] becomes dy's sums over the rows of each part.
template <class T>
void launch_column_sums(const T* dy, ComputeType<T>* partial, int64_t rows, int64_t columns, int64_t parts,
                        CUstream_st* stream);

/// gradient [columns] += the sum of the parts, in an order that their number decides.
template <class Sum, class Gradient>
void launch_add_parts(const Sum* partial, Gradient* gradient, int64_t columns, int64_t parts, CUstream_st* stream);

}  // namespace vit_hybrid::kernels
