// The loops over one row of LayerNorm, of residual sums and of dropout, for the host.
//
// Templates over Lanes<T> (lanes.h): vectors widened to fp32 when read and rounded when written, so that one text
// serves fp32, fp64, bf16 and fp16, and SSE, AVX2 and AVX-512.
#pragma once

#include <cstdint>

#include "src/kernels/layer_norm_arithmetic.h"

namespace vit_hybrid::kernels {

// T: float, double, bf16 or fp16, of n elements; F: float, or double for double. What is written is computed in F and
// rounded once. Arrays do not overlap unless it is said.

/// Half-length rows that are widened to fp32 at a time where one instruction does not do it, and the rows of fp32 that
/// a workspace holds.
inline constexpr int64_t kWidenedRows = 2;
inline constexpr int64_t kWorkspaceRows = 3 * kWidenedRows;

/// What all rows of a norm have in common.
template <class F>
struct NormRows {
  int64_t n;  ///< elements of a row, at least 1
  F eps;
  const F* weight;
  const F* bias;
  F* workspace;  ///< [kWorkspaceRows, n] of this thread, used where T is not F
};

/// y = norm_output(x) of `count` rows, and their statistics; the variance from differences to the mean. y may be x.
template <class T, class F>
void norm_rows(const T* x, T* y, int64_t count, F* mean, F* rstd, const NormRows<F>& rows);

/// branch <- residual_sum(residual, branch, scales[row]), and norm_rows() of that as rounded.
template <class T, class F>
void residual_norm_rows(const T* residual, T* branch, const F* scales, T* y, int64_t count, F* mean, F* rstd,
                        const NormRows<F>& rows);

/// What backward reads and writes of its rows.
template <class T, class F>
struct NormRowsBackward {
  const T* dy;
  const T* x;
  const F* mean;  ///< of each row
  const F* rstd;
  const T* residual;  ///< may be null: 0
  T* dx;              ///< may be dy
};

/// dx = norm_gradient(dy) + residual of `count` rows. Adds their parts, one after the other, into the gradients of
/// weight and bias: dweight += dy x^, dbias += dy.
template <class T, class F>
void norm_backward_rows(const NormRowsBackward<T, F>& arrays, int64_t count, F* dweight, F* dbias,
                        const NormRows<F>& rows);

/// sum = residual_sum(residual, branch, scale), where `residual` may be null: 0; sum may be branch.
template <class T, class F>
void residual_row(const T* residual, const T* branch, F scale, T* sum, int64_t n);

/// kept = scale x where keep is 1, 0 x where it is 0.
template <class T, class F>
void keep_row(const T* x, const uint8_t* keep, F scale, T* kept, int64_t n);

}  // namespace vit_hybrid::kernels
