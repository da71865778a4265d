// Attention on GPUs as one node with a hand-written backward, around LibTorch's kernels.
// Shapes: B samples, N tokens, h heads of d features.
#include "src/kernels/attention/device_attention.h"

#include <ATen/Context.h>
#include <ATen/ops/_efficient_attention_backward.h>
#include <ATen/ops/_efficient_attention_forward.h>
#include <ATen/ops/_scaled_dot_product_cudnn_attention.h>
#include <ATen/ops/_scaled_dot_product_cudnn_attention_backward.h>
#include <ATen/ops/_scaled_dot_product_flash_attention.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_backward.h>
#include <ATen/ops/scaled_dot_product_attention.h>

#include <optional>
#include <utility>

#include "src/base/error.h"
#include "src/kernels/attention/attention_heads.h"
#include "src/kernels/attention/device_attention_passes.h"
#include "src/kernels/attention/device_qkv_gradient.h"
#include "src/kernels/own_node.h"

namespace vit_hybrid::kernels {

namespace {

// LibTorch's flash backward adds in a fixed order where its process-wide switch is on. The switch is not left on: it
// would also fill every new tensor with NaN.
class FixedOrderScope {
 public:
  explicit FixedOrderScope(SumOrder order)
      : is_on_(order == SumOrder::kFixed),
        algorithms_(at::globalContext().deterministicAlgorithms()),
        warns_(at::globalContext().deterministicAlgorithmsWarnOnly()),
        fills_(at::globalContext().deterministicFillUninitializedMemory()) {
    if (is_on_) {
      at::globalContext().setDeterministicAlgorithms(true, false);
      at::globalContext().setDeterministicFillUninitializedMemory(false);
    }
  }
  ~FixedOrderScope() {
    if (is_on_) {
      at::globalContext().setDeterministicAlgorithms(algorithms_, warns_);
      at::globalContext().setDeterministicFillUninitializedMemory(fills_);
    }
  }
  FixedOrderScope(const FixedOrderScope&) = delete;
  FixedOrderScope& operator=(const FixedOrderScope&) = delete;

 private:
  bool is_on_, algorithms_, warns_, fills_;
};

// q, k or v as [B, N, h, d].
at::Tensor part_BNhd(const at::Tensor& qkv, int64_t num_heads, int64_t part) {
  const int64_t head_dim = qkv.size(2) / (3 * num_heads);
  return qkv.view({qkv.size(0), qkv.size(1), 3, num_heads, head_dim}).select(2, part);
}

// The gradients of q, k and v, each [B, N, h, d], as one tensor like qkv. No copy where they already are its thirds, as
// the efficient kernel writes them; flash's and cuDNN's are three tensors.
at::Tensor joined(const at::Tensor& dq, const at::Tensor& dk, const at::Tensor& dv, const at::Tensor& qkv) {
  const int64_t width = qkv.size(2), third = width / 3;
  const auto is_third = [&](const at::Tensor& gradient, int64_t index) {
    return gradient.is_alias_of(dq) && gradient.storage_offset() == dq.storage_offset() + index * third &&
           gradient.stride(0) == qkv.size(1) * width && gradient.stride(1) == width &&
           gradient.stride(2) == gradient.size(3) && gradient.stride(3) == 1;
  };
  if (is_third(dq, 0) && is_third(dk, 1) && is_third(dv, 2)) {
    return dq.as_strided(qkv.sizes(), {qkv.size(1) * width, width, 1}, dq.storage_offset());
  }
  return device_qkv_gradient(dq, dk, dv);
}

AttentionPass efficient_forward(const at::Tensor& qkv, int64_t num_heads, Passes passes) {
  auto result = at::_efficient_attention_forward(part_BNhd(qkv, num_heads, 0), part_BNhd(qkv, num_heads, 1),
                                                 part_BNhd(qkv, num_heads, 2), std::nullopt, std::nullopt, std::nullopt,
                                                 std::nullopt, std::nullopt, 0.0, 0, passes == Passes::kBoth);
  return {std::get<0>(result).transpose(1, 2), std::get<1>(result), std::get<2>(result), std::get<3>(result)};
}

at::Tensor efficient_backward(const at::Tensor& dout, const at::Tensor& qkv, int64_t num_heads, SumOrder order,
                              const AttentionPass& pass) {
  const int64_t num_tokens = qkv.size(1);
  const at::Tensor q = part_BNhd(qkv, num_heads, 0);
  // Several parts of the keys would add to the gradient of q at the same time.
  const auto parts = order == SumOrder::kFixed ? std::optional<int64_t>(1) : std::nullopt;
  const auto gradients = at::_efficient_attention_backward(
      dout.view(q.sizes()), q, part_BNhd(qkv, num_heads, 1), part_BNhd(qkv, num_heads, 2), std::nullopt,
      pass.out_BhNd.transpose(1, 2), std::nullopt, std::nullopt, num_tokens, num_tokens, pass.logsumexp, 0.0, pass.seed,
      pass.offset, 0, false, std::nullopt, parts, std::nullopt, true);
  return joined(std::get<0>(gradients), std::get<1>(gradients), std::get<2>(gradients), qkv);
}

using Gradients = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

at::Tensor joined_by_heads(const Gradients& gradients, const at::Tensor& qkv) {
  return joined(std::get<0>(gradients).transpose(1, 2), std::get<1>(gradients).transpose(1, 2),
                std::get<2>(gradients).transpose(1, 2), qkv);
}

at::Tensor composite_attention(const at::Tensor& qkv, int64_t num_heads) {
  const auto [q, k, v] = split_heads(qkv, num_heads);
  return merge_heads(at::scaled_dot_product_attention(q, k, v));
}

}  // namespace

AttentionPass attention_forward(const at::Tensor& qkv, int64_t num_heads, DeviceAttention kernel, Passes passes) {
  const auto [q, k, v] = split_heads(qkv, num_heads);
  switch (kernel) {
    case DeviceAttention::kFlash: {
      const auto result = at::_scaled_dot_product_flash_attention(q, k, v, 0.0, false, false);
      return {std::get<0>(result), std::get<1>(result), std::get<6>(result), std::get<7>(result)};
    }
    case DeviceAttention::kCudnn: {
      const auto result =
          at::_scaled_dot_product_cudnn_attention(q, k, v, std::nullopt, passes == Passes::kBoth, 0.0, false, false);
      return {std::get<0>(result), std::get<1>(result), std::get<6>(result), std::get<7>(result)};
    }
    case DeviceAttention::kEfficient:
      return efficient_forward(qkv, num_heads, passes);
    case DeviceAttention::kComposite:
      break;
  }
  fail_invariant("a fused kernel", __FILE__, __LINE__, device_attention_name(kernel));
}

at::Tensor attention_backward(const at::Tensor& dout, const at::Tensor& qkv, int64_t num_heads, DeviceAttention kernel,
                              SumOrder order, const AttentionPass& pass) {
  const int64_t num_tokens = qkv.size(1);
  const auto [q, k, v] = split_heads(qkv, num_heads);
  const at::Tensor dout_BhNd = heads_of(dout, num_heads);
  const at::Tensor none;
  switch (kernel) {
    case DeviceAttention::kFlash: {
      const FixedOrderScope scope(order);
      return joined_by_heads(at::_scaled_dot_product_flash_attention_backward(
                                 dout_BhNd, q, k, v, pass.out_BhNd, pass.logsumexp, none, none, num_tokens, num_tokens,
                                 0.0, false, pass.seed, pass.offset),
                             qkv);
    }
    case DeviceAttention::kCudnn:
      return joined_by_heads(at::_scaled_dot_product_cudnn_attention_backward(
                                 dout_BhNd, q, k, v, pass.out_BhNd, pass.logsumexp, pass.seed, pass.offset, none, none,
                                 none, num_tokens, num_tokens, 0.0, false),
                             qkv);
    case DeviceAttention::kEfficient:
      return efficient_backward(dout, qkv, num_heads, order, pass);
    case DeviceAttention::kComposite:
      break;
  }
  fail_invariant("a fused kernel", __FILE__, __LINE__, device_attention_name(kernel));
}

at::Tensor device_attention(const at::Tensor& qkv, int64_t num_heads) {
  const AttentionProblem problem{qkv.size(0), qkv.size(1), num_heads, qkv.size(2) / (3 * num_heads), qkv.scalar_type()};
  return device_attention(qkv, num_heads, chosen_attention(problem, qkv.device()));
}

at::Tensor device_attention(const at::Tensor& qkv, int64_t num_heads, DeviceAttention kernel) {
  if (kernel == DeviceAttention::kComposite) {
    return composite_attention(qkv, num_heads);
  }
  const Passes passes = records({qkv}) ? Passes::kBoth : Passes::kForwardOnly;
  const AttentionPass pass = without_grad([&] { return attention_forward(qkv, num_heads, kernel, passes); });
  const auto backward = [qkv, num_heads, kernel, pass](const at::Tensor& dout) {
    return std::vector<at::Tensor>{
        attention_backward(dout.contiguous(), qkv, num_heads, kernel, device_kernel_options().order, pass)};
  };
  return record("device_attention", merge_heads(pass.out_BhNd), {qkv}, backward);
}

}  // namespace vit_hybrid::kernels
