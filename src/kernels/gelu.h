// GELU, the exact one (erf): forward and backward of tensors.
#pragma once

#include <ATen/core/Tensor.h>

namespace vit_hybrid::kernels {

/// z Phi(z), exactly (erf; D. Hendrycks, K. Gimpel, 2016), elementwise. Half-length types: in fp32, rounded once.
at::Tensor exact_gelu(const at::Tensor& z);

/// The gradient of z [R, M] from that of exact_gelu(z): dy (Phi(z) + z phi(z)). Adds its sum over the rows into
/// `bias_gradient` [M] unless that is undefined, in the same pass over memory.
at::Tensor exact_gelu_backward(const at::Tensor& dy, const at::Tensor& z, const at::Tensor& bias_gradient);

}  // namespace vit_hybrid::kernels
