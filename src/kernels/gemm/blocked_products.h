// The three products (GEMM) of a linear layer in fp32 and bf16 on the host, cut into blocks that stay in the caches.
#pragma once

#include <ATen/core/Tensor.h>

#include "src/kernels/gelu.h"

namespace vit_hybrid::kernels {

// All tensors are contiguous host tensors, fp32 or bf16 (where has_bf16_block_kernel()). Sums are fp32, and each
// element of a result is rounded once. The bits do not depend on the number of threads.

/// What blocked_forward() makes of z = x W^T + b; an undefined tensor is not written.
struct BlockedOutput {
  at::Tensor linear;     ///< [R, M]: z
  at::Tensor activated;  ///< [R, M]: gelu(z), of the unrounded z
  GeluKind gelu = GeluKind::kErf;
};

/// x [R, K] times weight [M, K] transposed, given as pack_transposed_panels(weight), plus bias [M] in fp32.
void blocked_forward(const at::Tensor& x, const at::Tensor& panels, const at::Tensor& bias, const BlockedOutput& out);

/// dx [R, K] = dy [R, M] times weight [M, K], given as pack_panels(weight).
void blocked_backward_input(const at::Tensor& dy, const at::Tensor& panels, const at::Tensor& dx);

/// gradient [M, K] += dy [R, M] transposed times x [R, K]. The gradient is fp32 or of their type.
void blocked_add_weight_gradient(const at::Tensor& gradient, const at::Tensor& dy, const at::Tensor& x);

/// Bytes that each thread works in at most in the three products of a layer.
int64_t blocked_thread_bytes(at::ScalarType type, at::ScalarType gradient, int64_t outputs, int64_t inputs);

}  // namespace vit_hybrid::kernels
