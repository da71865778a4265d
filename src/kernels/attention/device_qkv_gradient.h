// The gradient of qkv on a GPU from those of q, k and v; in programs without CUDA there are none to join.
#pragma once

#include <ATen/core/Tensor.h>

namespace vit_hybrid::kernels {

/// dq, dk and dv, each [B, N, h, d], as [B, N, 3 h d], in one pass over memory; one that is not contiguous is copied
/// before.
at::Tensor device_qkv_gradient(const at::Tensor& dq, const at::Tensor& dk, const at::Tensor& dv);

}  // namespace vit_hybrid::kernels
