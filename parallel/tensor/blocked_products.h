// The three products of a linear layer in fp32 on the host, cut into blocks that stay in the caches.
#pragma once

#include <ATen/core/Tensor.h>

namespace vit_hybrid::tensor {

/// weight [M, K] transposed, in panels of columns each contiguous: the form that blocked_forward() reads. Written into
/// `reuse` if that is what an earlier call for this shape gave, else (undefined) into a new tensor.
at::Tensor pack_panels(const at::Tensor& weight, const at::Tensor& reuse = {});

/// x [R, K] times weight [M, K] transposed, given as pack_panels(weight), plus bias [M] unless it is undefined: [R, M].
/// All tensors here are contiguous fp32 host tensors. The bits do not depend on the number of threads.
at::Tensor blocked_forward(const at::Tensor& x, const at::Tensor& panels, int64_t num_outputs, const at::Tensor& bias);

/// dy [R, M] times weight [M, K]: [R, K].
at::Tensor blocked_backward_input(const at::Tensor& dy, const at::Tensor& weight);

/// gradient [M, K] += dy [R, M] transposed times x [R, K].
void blocked_add_weight_gradient(const at::Tensor& gradient, const at::Tensor& dy, const at::Tensor& x);

}  // namespace vit_hybrid::tensor
