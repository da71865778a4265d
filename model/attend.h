// attend(): the core of attention, by the kernel that fits type, device and dropout.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "model/attention_dropout.h"

namespace vit_hybrid::model {

/// kFused: LibTorch's. kBlocked: ours on the host, with or without dropout. kMasked: ours on devices, with dropout.
enum class AttentionKernel { kFused, kBlocked, kMasked };

/// The kernel for this qkv.
AttentionKernel choose_attention_kernel(const at::Tensor& qkv, const AttentionDropout& dropout);

/// qkv [B, N, 3 h d] -> [B, N, h d]: drop(softmax(q k^T / sqrt(d))) v for each of the h heads. B may be 0.
at::Tensor attend(const at::Tensor& qkv, int64_t num_heads, const AttentionDropout& dropout);

}  // namespace vit_hybrid::model
