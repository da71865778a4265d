// attend(): the core of attention (scaled dot-product attention), by the kernel that fits type, device and dropout.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <string>

#include "src/kernels/dropout.h"

namespace vit_hybrid::kernels {

/// qkv [B, N, 3 h d] (all q, then all k, then all v, each by heads) -> [B, N, h d]: softmax(q k^T / sqrt(d)) v for each
/// of the h heads, B at least 1, fp64, fp32, bf16 or fp16. Memory for the graph is O(N).
at::Tensor fused_attention(const at::Tensor& qkv, int64_t num_heads);

/// The function of blocked_attention(), on any device. It goes over blocks of queries in forward and in backward, with
/// masks drawn on the host; the graph keeps qkv only. Half-length types are computed in fp32 and rounded once.
at::Tensor masked_attention(const at::Tensor& qkv, int64_t num_heads, const AttentionDropout& dropout);

/// kFused: LibTorch's. kBlocked: ours on the host, with or without dropout. kMasked: ours on devices, with dropout.
enum class AttentionKernel { kFused, kBlocked, kMasked };

/// The kernel for this device and type. It depends on the processor and the build of LibTorch, not on shapes.
AttentionKernel choose_attention_kernel(c10::Device device, at::ScalarType type, bool with_dropout);

/// One line for the start-up report: how attention of this type is computed on this device, and why.
std::string attention_kernel_text(c10::Device device, at::ScalarType type, bool with_dropout);

/// qkv [B, N, 3 h d] -> [B, N, h d]: drop(softmax(q k^T / sqrt(d))) v for each of the h heads. B may be 0. fp64, fp32,
/// bf16 or fp16; scores, softmax and all sums are fp32 (fp64 for fp64).
at::Tensor attend(const at::Tensor& qkv, int64_t num_heads, const AttentionDropout& dropout);

}  // namespace vit_hybrid::kernels
