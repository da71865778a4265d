// The loops over rows of the error of fields, for the host.
#pragma once

#include <cstdint>

#include "src/base/instruction_sets.h"

namespace vit_hybrid::kernels {

/// What of an error is added up: its square, or its absolute value.
enum class ErrorPower { kSquare, kAbsolute };

/// Sums of such powers of the differences and of the truth.
struct FieldSums {
  double error = 0.0;
  double truth = 0.0;
};

VH_HOST_DEVICE inline double power_of(double value, ErrorPower power) {
  return power == ErrorPower::kSquare ? value * value : value < 0.0 ? -value : value;
}

/// One element of the gradient: the error, or its sign (0 of 0, NaN of NaN), times a factor; that may hold a loss
/// scale, so the product is made in double.
template <class F>
VH_HOST_DEVICE inline F error_gradient(F prediction, F truth, double factor, ErrorPower power) {
  const auto error = static_cast<double>(prediction - truth);
  const double slope = power == ErrorPower::kSquare ? error : error > 0.0 ? 1.0 : error < 0.0 ? -1.0 : error;
  return static_cast<F>(slope * factor);
}

// T: float, double, bf16 or fp16; F: float, or double for double. Rows of n elements. `weights` multiply what is added
// up and the gradient; null: ones. They are read in whole vectors: kWeightsBehind more lie behind the n, finite.

inline constexpr int64_t kWeightsBehind = 15;

template <class T, class F>
FieldSums field_sums_row(const T* prediction, const F* truth, const double* weights, ErrorPower power, int64_t n);

/// to = error_gradient(), rounded to T.
template <class T, class F>
void error_gradient_row(const T* prediction, const F* truth, const double* weights, double factor, ErrorPower power,
                        T* to, int64_t n);

}  // namespace vit_hybrid::kernels
