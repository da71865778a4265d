// The matrix products of linear layers, in the one place that may choose how they are computed.
#pragma once

#include <ATen/core/Tensor.h>

namespace vit_hybrid::tensor {

/// x [R, K] times weight [M, K] transposed, plus bias [M] unless it is undefined: [R, M].
at::Tensor linear_forward(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias);

/// dy [R, M] times weight [M, K]: the gradient of the input, [R, K].
at::Tensor linear_backward_input(const at::Tensor& dy, const at::Tensor& weight);

/// gradient [M, K] += dy [R, M] transposed times x [R, K]. The gradient may have a wider type.
void add_weight_gradient(const at::Tensor& gradient, const at::Tensor& dy, const at::Tensor& x);

/// gradient [M] += sum over the rows of dy [R, M]. The gradient may have a wider type.
void add_bias_gradient(const at::Tensor& gradient, const at::Tensor& dy);

}  // namespace vit_hybrid::tensor
