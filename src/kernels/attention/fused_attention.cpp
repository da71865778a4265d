// Fused attention: the flash kernel on the host, the kernel chosen for the shape on GPUs.
// Shapes: B samples, N tokens, h heads of d features.
#include "src/kernels/attention/fused_attention.h"

#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/ops/empty_like.h>

#include "src/kernels/attention/attention_heads.h"
#include "src/kernels/attention/device_attention.h"
#include "src/kernels/own_node.h"

namespace vit_hybrid::kernels {

namespace {

// The gradient of qkv in one tensor: LibTorch's own graph would stack q, k and v and then copy them once more.
at::Tensor host_backward(const at::Tensor& dout, const at::Tensor& qkv, const at::Tensor& out,
                         const at::Tensor& logsumexp, int64_t num_heads) {
  const auto [q, k, v] = split_heads(qkv, num_heads);
  const at::Tensor dout_BhNd = dout.view({q.size(0), q.size(2), num_heads, q.size(3)}).transpose(1, 2);
  const auto gradients =
      at::_scaled_dot_product_flash_attention_for_cpu_backward(dout_BhNd, q, k, v, out, logsumexp, 0.0, false);
  at::Tensor dqkv = at::empty_like(qkv);
  const auto [dq, dk, dv] = split_heads(dqkv, num_heads);
  dq.copy_(std::get<0>(gradients));
  dk.copy_(std::get<1>(gradients));
  dv.copy_(std::get<2>(gradients));
  return dqkv;
}

at::Tensor host_attention(const at::Tensor& qkv, int64_t num_heads) {
  const auto [out, logsumexp] = without_grad([&] {
    const auto [q, k, v] = split_heads(qkv, num_heads);
    return at::_scaled_dot_product_flash_attention_for_cpu(q, k, v);
  });
  const auto backward = [qkv, num_heads, out = out, logsumexp = logsumexp](const at::Tensor& dout) {
    return std::vector<at::Tensor>{host_backward(dout.contiguous(), qkv, out, logsumexp, num_heads)};
  };
  return record("fused_attention", merge_heads(out), {qkv}, backward);
}

}  // namespace

at::Tensor fused_attention(const at::Tensor& qkv, int64_t num_heads) {
  return qkv.is_cpu() ? host_attention(qkv, num_heads) : device_attention(qkv, num_heads);
}

}  // namespace vit_hybrid::kernels
