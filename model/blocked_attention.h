// Attention on the host in blocks of queries and keys, with or without keyed dropout; memory is linear in the tokens.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "model/attention_dropout.h"

namespace vit_hybrid::model {

/// qkv [B, N, 3 h d] (all q, then all k, then all v, each by heads), fp32 or fp64 on the host -> [B, N, h d]:
/// drop(softmax(q k^T / sqrt(d))) v for each of the h heads (M. N. Rabe, C. Staats, "Self-attention does not need
/// O(n^2) memory", 2021; the backward of T. Dao et al., FlashAttention, 2022, appendix B). The graph keeps qkv, the
/// result and one number a query and head. The bits do not depend on the number of threads.
at::Tensor blocked_attention(const at::Tensor& qkv, int64_t num_heads, const AttentionDropout& dropout);

}  // namespace vit_hybrid::model
