// Attention with keyed dropout from plain tensor operations, for devices that the blocked kernels do not run on.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "src/kernels/attention/attention_dropout.h"

namespace vit_hybrid::kernels {

/// The function of blocked_attention(), on any device. It goes over blocks of queries in forward and in backward, with
/// masks drawn on the host; the graph keeps qkv only. Half-length types are computed in fp32 and rounded once.
at::Tensor masked_attention(const at::Tensor& qkv, int64_t num_heads, const AttentionDropout& dropout);

}  // namespace vit_hybrid::kernels
