// LayerNorm of tensors, forward and backward, alone and together with the residual sum beside it.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace vit_hybrid::kernels {

// Tensors are contiguous, of one type but for `mean`, `rstd` and `scales`, which are fp32 (fp64 for fp64), and the
// gradients. Half-length types are computed in fp32 and rounded once. Each byte passes memory once. On the host the
// bits do not depend on the number of threads.

struct Normed {
  at::Tensor y;
  at::Tensor mean;  ///< of each row, [R]
  at::Tensor rstd;  ///< 1 / sqrt(variance + eps), [R]
};

/// x [..., D], weight and bias [D].
Normed layer_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, double eps);

struct NormedSum {
  at::Tensor sum;
  Normed normed;  ///< of the sum as rounded
};

/// The sum of residual_sum() (which see), written over `branch`, and its norm.
NormedSum residual_layer_norm(const at::Tensor& residual, const at::Tensor& branch, const at::Tensor& scales,
                              const at::Tensor& weight, const at::Tensor& bias, double eps);

/// What backward needs of a forward.
struct NormInput {
  at::Tensor x;
  at::Tensor mean;
  at::Tensor rstd;
};

/// Where the gradients of the parameters are added into, [D], of one float type.
struct NormGradients {
  at::Tensor weight;
  at::Tensor bias;
  /// Of a bias that was added to x: to it goes the sum over the rows of the gradient of x as rounded. May be undefined.
  at::Tensor added_bias = {};
};

/// The gradient of x from dy, plus `residual_gradient` unless that is undefined.
at::Tensor layer_norm_backward(const at::Tensor& dy, const NormInput& input, const at::Tensor& weight,
                               const at::Tensor& residual_gradient, const NormGradients& gradients);

// For tensors that are not on the host, which the functions above call; in programs without CUDA there are none.
// Nothing here waits for the device.

Normed device_layer_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, double eps);
NormedSum device_residual_layer_norm(const at::Tensor& residual, const at::Tensor& branch, const at::Tensor& scales,
                                     const at::Tensor& weight, const at::Tensor& bias, double eps);
at::Tensor device_layer_norm_backward(const at::Tensor& dy, const NormInput& input, const at::Tensor& weight,
                                      const at::Tensor& residual_gradient, const NormGradients& gradients);

// The loops over rows of the host, of norms, residual sums and dropout: templates over Lanes<T> (lanes.h), vectors
// widened to fp32 when read and rounded when written, so that one text serves fp32, fp64, bf16 and fp16, and SSE, AVX2
// and AVX-512. What is done to an element, layer_norm_arithmetic.h says.
//
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
