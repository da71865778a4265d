// The loops over rows of the error of fields, for the host.
#pragma once

#include <cstdint>

#include "src/base/instruction_sets.h"

namespace vit_hybrid::kernels {

/// Sums of squares of the differences and of the truth.
struct FieldSquares {
  double error = 0.0;
  double truth = 0.0;
};

/// One element of the gradient; the factor may hold a loss scale, so the product is made in double.
template <class F>
VH_HOST_DEVICE inline F scaled_difference(F prediction, F truth, double factor) {
  return static_cast<F>(static_cast<double>(prediction - truth) * factor);
}

// T: float, double, bf16 or fp16; F: float, or double for double. Rows of n elements.

template <class T, class F>
FieldSquares field_squares_row(const T* prediction, const F* truth, int64_t n);

/// to = scaled_difference(), rounded to T.
template <class T, class F>
void scaled_difference_row(const T* prediction, const F* truth, double factor, T* to, int64_t n);

}  // namespace vit_hybrid::kernels
