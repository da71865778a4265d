// Attention without dropout on GPUs, by the fastest fused kernel for the shape: one of LibTorch's, or our own.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "src/kernels/gemm/device_products.h"

namespace vit_hybrid::kernels {

/// Views of q, k and v, each [B, h, N, d], in a tensor [B, N, 3 h d].
inline std::array<at::Tensor, 3> split_heads(const at::Tensor& qkv, int64_t num_heads) {
  const int64_t head_dim = qkv.size(2) / (3 * num_heads);
  const at::Tensor parts = qkv.view({qkv.size(0), qkv.size(1), 3, num_heads, head_dim}).permute({2, 0, 3, 1, 4});
  return {parts.select(0, 0), parts.select(0, 1), parts.select(0, 2)};
}

/// The view [B, h, N, d] of a tensor [B, N, h d].
inline at::Tensor heads_of(const at::Tensor& x, int64_t num_heads) {
  return x.view({x.size(0), x.size(1), num_heads, x.size(2) / num_heads}).transpose(1, 2);
}

/// [B, h, N, d] as [B, N, h d]; no copy where the tokens are outermost in memory.
inline at::Tensor merge_heads(const at::Tensor& x_BhNd) {
  return x_BhNd.transpose(1, 2).reshape({x_BhNd.size(0), x_BhNd.size(2), x_BhNd.size(1) * x_BhNd.size(3)});
}

/// kFlash: FlashAttention 2. kEfficient: CUTLASS's, also for V100 and fp32 (fp32 on sm_80 and newer by three tf32
/// products, as exact as one in fp32). kCudnn: cuDNN's. kShort: our own for few tokens (short_attention_cuda.h).
/// kComposite: products and softmax one after the other, with N x N numbers in memory, for what none of the others
/// takes.
enum class DeviceAttention { kFlash, kEfficient, kCudnn, kShort, kComposite };
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
/// by the kernel that find_attention() has in kernel_table(), else the first of device_attentions(). Its backward
/// writes the gradient of qkv into one tensor.
at::Tensor device_attention(const at::Tensor& qkv, int64_t num_heads);
/// The same by a kernel that takes it.
at::Tensor device_attention(const at::Tensor& qkv, int64_t num_heads, DeviceAttention kernel);

/// Measures forward and backward of every kernel that takes the problem, and puts the fastest that the options allow
/// into kernel_table().
void measure_attention(const AttentionProblem& problem, c10::Device device);

/// One line for the start-up report: the kernel of attention in this type on a GPU, and why.
std::string device_attention_text(c10::Device device, at::ScalarType type);

/// Tokens of a tile that the chosen kernels for this type pad to: 16 where all are our own, else 64.
int64_t device_attention_tile(at::ScalarType type);

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

/// The kernel that was chosen for the problem or, where none was, for the same problem with another number of samples
/// (the nearest; of two the larger): evaluation and last batches have their own, which nobody measures. Nothing where
/// the table has neither. Pure.
std::optional<DeviceAttention> find_attention(const KernelTable& table, const AttentionProblem& problem);

/// kShort: qkv [B, N, 3 h d], contiguous, that its kernel takes.
AttentionPass device_short_attention(const at::Tensor& qkv, int64_t num_heads, Passes passes);
/// dout and the result of forward are contiguous as [B, N, h d].
at::Tensor device_short_attention_backward(const at::Tensor& dout, const at::Tensor& qkv, int64_t num_heads,
                                           const AttentionPass& pass);

/// dq, dk and dv, each [B, N, h, d], as [B, N, 3 h d], in one pass over memory; one that is not contiguous is copied
/// before.
at::Tensor device_qkv_gradient(const at::Tensor& dq, const at::Tensor& dk, const at::Tensor& dv);

}  // namespace vit_hybrid::kernels
