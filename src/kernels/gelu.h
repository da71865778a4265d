// GELU, with erf or tanh: forward and backward of tensors.
#pragma once

#include <ATen/core/Tensor.h>

#include "src/kernels/gelu_kind.h"

namespace vit_hybrid::kernels {

/// z Phi(z), elementwise. Half-length types: in fp32, rounded once.
at::Tensor gelu(const at::Tensor& z, GeluKind kind);

/// The gradient of z [R, M] from that of gelu(z): dy (Phi(z) + z phi(z)). Adds its sum over the rows into
/// `bias_gradient` [M] unless that is undefined, in the same pass over memory.
at::Tensor gelu_backward(const at::Tensor& dy, const at::Tensor& z, GeluKind kind, const at::Tensor& bias_gradient);

/// The same two on a GPU, the sums in a fixed order.
at::Tensor device_gelu(const at::Tensor& z, GeluKind kind);
at::Tensor device_gelu_backward(const at::Tensor& dy, const at::Tensor& z, GeluKind kind,
                                const at::Tensor& bias_gradient);

}  // namespace vit_hybrid::kernels
