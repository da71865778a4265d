// Attention without dropout through LibTorch's fused kernels.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace vit_hybrid::kernels {

/// qkv [B, N, 3 h d] (all q, then all k, then all v, each by heads) -> [B, N, h d]: softmax(q k^T / sqrt(d)) v for each
/// of the h heads, B at least 1, fp64, fp32, bf16 or fp16. Memory for the graph is O(N).
at::Tensor fused_attention(const at::Tensor& qkv, int64_t num_heads);

}  // namespace vit_hybrid::kernels
