// Attention on the host in blocks of queries and keys, with or without keyed dropout; memory is linear in the tokens.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "src/kernels/dropout.h"

namespace vit_hybrid::kernels {

/// qkv [B, N, 3 h d] (all q, then all k, then all v, each by heads) on the host, fp64, fp32, bf16 or fp16 -> [B, N, h
/// d]: drop(softmax(q k^T / sqrt(d))) v for each of the h heads (M. N. Rabe, C. Staats, "Self-attention does not need
/// O(n^2) memory", 2021; the backward of T. Dao et al., FlashAttention, 2022, appendix B). The graph keeps qkv, the
/// result and one number a query and head. The bits do not depend on the number of threads, nor on the other samples
/// and heads.
///
/// bf16 is multiplied as such where has_bf16_block_kernel(): scores, softmax, logsumexp and all sums are fp32, the
/// weights and the gradients of the scores are rounded to bf16 as operands of the next products, results once at the
/// end. Elsewhere bf16, and fp16 everywhere, are converted to fp32, computed, and rounded once.
at::Tensor blocked_attention(const at::Tensor& qkv, int64_t num_heads, const AttentionDropout& dropout);

/// Sizes of an attention of `heads` heads of `head_dim` features.
struct AttentionSizes {
  int64_t samples = 0;
  int64_t tokens = 0;
  int64_t heads = 0;
  int64_t head_dim = 0;
};

/// Bytes that forward and backward of blocked_attention() with `threads` threads take at most beside qkv, the result
/// and their gradients: workspaces of the threads, dq in parts, and copies in fp32 of what is converted.
int64_t blocked_attention_bytes(const AttentionSizes& sizes, at::ScalarType type, bool with_dropout, int threads);

}  // namespace vit_hybrid::kernels
