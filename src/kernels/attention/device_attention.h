// Attention without dropout on GPUs, by the fastest of LibTorch's fused kernels for the shape.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <string>
#include <vector>

#include "src/kernels/gemm/device_kernels.h"

namespace vit_hybrid::kernels {

/// kFlash: FlashAttention 2. kEfficient: CUTLASS's, also for V100 and fp32 (fp32 on sm_80 and newer by three tf32
/// products, as exact as one in fp32). kCudnn: cuDNN's. kComposite: products and softmax one after the other, with N x
/// N numbers in memory, for what none of the others takes.
enum class DeviceAttention { kFlash, kEfficient, kCudnn, kComposite };
std::string device_attention_name(DeviceAttention kernel);

struct AttentionProblem {
  int64_t samples = 0;
  int64_t tokens = 0;
  int64_t heads = 0;
  int64_t head_dim = 0;
  at::ScalarType type = at::kFloat;

  bool operator==(const AttentionProblem&) const = default;
  /// Unique among the names of a KernelTable: "attention B64 N197 h12 d64 bf16".
  std::string name() const;
  /// Of forward and backward, without what backward computes again.
  double flops() const;
};

/// The kernels that take the problem on such a device, and add in that order, those first that should be the fastest. A
/// pure function; kComposite stands alone or not at all.
std::vector<DeviceAttention> device_attentions(const AttentionProblem& problem, const DeviceTraits& traits,
                                               SumOrder order);

/// qkv [B, N, 3 h d] (all q, then all k, then all v, each by heads) -> [B, N, h d] as fused_attention(), B at least 1,
/// by the kernel that kernel_table() has for the problem, else the first of device_attentions(). Its backward
/// writes the gradient of qkv into one tensor.
at::Tensor device_attention(const at::Tensor& qkv, int64_t num_heads);
/// The same by a kernel that takes it.
at::Tensor device_attention(const at::Tensor& qkv, int64_t num_heads, DeviceAttention kernel);

/// Measures forward and backward of every kernel that takes the problem, and puts the fastest that the options allow
/// into kernel_table().
void measure_attention(const AttentionProblem& problem, c10::Device device);

/// One line for the start-up report: the kernel of attention in this type on a GPU, and why.
std::string device_attention_text(c10::Device device, at::ScalarType type);

}  // namespace vit_hybrid::kernels
