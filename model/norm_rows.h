// The loops over one row of LayerNorm, of residual sums and of dropout, for the host.
#pragma once

#include <cstdint>

#include "model/norm_kernel.h"

namespace vit_hybrid::model {

// T: float, double, bf16 or fp16, of n elements; F: float, or double for double. What is written is computed in F and
// rounded once. Arrays do not overlap unless it is said.

/// What all rows of a norm have in common.
template <class F>
struct NormRows {
  int64_t n;  ///< elements of a row, at least 1
  F eps;
  const F* weight;
  const F* bias;
  F* workspace;  ///< 2 n elements of this thread, used where T is not F: a row is widened once
};

/// y = norm_output(x), the variance from differences to the mean.
template <class T, class F>
NormStatistics<F> norm_row(const T* x, T* y, const NormRows<F>& rows);

/// branch <- residual_sum(residual, branch, scale), and y = norm_output() of that as rounded.
template <class T, class F>
NormStatistics<F> residual_norm_row(const T* residual, T* branch, F scale, T* y, const NormRows<F>& rows);

/// dx = norm_gradient(dy) + residual, where `residual` may be null: 0. Adds the row's part into the gradients of weight
/// and bias: dweight += dy x^, dbias += dy.
template <class T, class F>
void norm_backward_row(const T* dy, const T* x, NormStatistics<F> statistics, const T* residual, T* dx, F* dweight,
                       F* dbias, const NormRows<F>& rows);

/// sum = residual_sum(residual, branch, scale), where `residual` may be null: 0; sum may be branch.
template <class T, class F>
void residual_row(const T* residual, const T* branch, F scale, T* sum, int64_t n);

/// kept = scale x where keep is 1, 0 x where it is 0.
template <class T, class F>
void keep_row(const T* x, const uint8_t* keep, F scale, T* kept, int64_t n);

}  // namespace vit_hybrid::model
