// Forward and backward of the fused attention kernels on GPUs as plain functions, outside of any graph.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "src/kernels/attention/device_attention.h"

namespace vit_hybrid::kernels {

enum class Passes { kForwardOnly, kBoth };

/// What backward needs of forward, in the layouts of the kernel.
struct AttentionPass {
  at::Tensor out_BhNd;
  at::Tensor logsumexp;
  at::Tensor seed, offset;  ///< of dropout, which there is none of; backward wants to see them
};

/// By any kernel but kComposite. Without grad mode.
AttentionPass attention_forward(const at::Tensor& qkv, int64_t num_heads, DeviceAttention kernel, Passes passes);

/// The gradient of qkv, [B, N, 3 h d], contiguous, from that of the result, [B, N, h d], contiguous.
at::Tensor attention_backward(const at::Tensor& dout, const at::Tensor& qkv, int64_t num_heads, DeviceAttention kernel,
                              SumOrder order, const AttentionPass& pass);

/// The kernel that find_attention() has in kernel_table(), else the first that takes the problem.
DeviceAttention chosen_attention(const AttentionProblem& problem, c10::Device device);

}  // namespace vit_hybrid::kernels
