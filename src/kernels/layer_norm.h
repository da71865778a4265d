// LayerNorm of tensors, forward and backward, alone and together with the residual sum beside it.
#pragma once

#include <ATen/core/Tensor.h>

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

/// Where the gradients of the parameters are added into, [D], of any float type.
struct NormGradients {
  at::Tensor weight;
  at::Tensor bias;
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

}  // namespace vit_hybrid::kernels
