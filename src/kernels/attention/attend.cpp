// Attention: the flash kernel on the host, plain operations with masks, and the choice.
// Shapes: B samples, N tokens, h heads of d features.
#include "src/kernels/attention/attend.h"

#include <ATen/OpMathType.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/softmax.h>

#include <cmath>

#include "src/base/autograd_node.h"
#include "src/kernels/attention/blocked_attention.h"
#include "src/kernels/attention/device_attention.h"
#include "src/kernels/gemm/small_product.h"

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

constexpr int64_t kQueryBlock = 256;

// Half-length types are computed in fp32: LibTorch's products would round scores and their gradients to half length.
at::Tensor in_computing_type(const at::Tensor& x) {
  return x.to(at::toOpMathType(x.scalar_type()));
}

// [B, h, Q, N]: 0, or 1 / (1 - rate).
at::Tensor mask_factors(const AttentionDropout& dropout, const at::Tensor& k_BhNd, Range queries) {
  const at::Tensor keep = dropout.keep_block(k_BhNd.size(1), queries, k_BhNd.device());
  return keep.to(k_BhNd.scalar_type()).mul_(dropout.kept_scale());
}

double score_scale(const at::Tensor& q_BhNd) {
  return 1.0 / std::sqrt(static_cast<double>(q_BhNd.size(3)));
}

at::Tensor weights_of(const at::Tensor& q_BhQd, const at::Tensor& k_BhNd) {
  return at::softmax(at::matmul(q_BhQd, k_BhNd.transpose(2, 3)).mul_(score_scale(q_BhQd)), -1);
}

template <class Visit>
void for_query_blocks(int64_t num_tokens, Visit visit) {
  const Partition blocks(num_tokens, (num_tokens + kQueryBlock - 1) / kQueryBlock);
  for (int64_t block = 0; block < blocks.parts(); ++block) {
    visit(blocks.part(block));
  }
}

at::Tensor forward(const at::Tensor& qkv, int64_t num_heads, const AttentionDropout& dropout) {
  const auto [q, k, v] = split_heads(qkv, num_heads);
  at::Tensor out = at::empty({qkv.size(0), qkv.size(1), qkv.size(2) / 3}, qkv.options());
  const at::Tensor out_BhNd = heads_of(out, num_heads);
  for_query_blocks(qkv.size(1), [&, q = q, k = k, v = v](Range queries) {
    const at::Tensor weights = weights_of(q.narrow(2, queries.begin, queries.size()), k);
    out_BhNd.narrow(2, queries.begin, queries.size())
        .copy_(at::matmul(weights.mul_(mask_factors(dropout, k, queries)), v));
  });
  return out;
}

at::Tensor backward(const at::Tensor& qkv, int64_t num_heads, const AttentionDropout& dropout, const at::Tensor& dout) {
  const auto [q, k, v] = split_heads(qkv, num_heads);
  at::Tensor dqkv = at::empty_like(qkv).zero_();
  const auto [dq, dk, dv] = split_heads(dqkv, num_heads);
  const at::Tensor dout_BhNd = heads_of(dout, num_heads);
  for_query_blocks(qkv.size(1), [&, q = q, k = k, v = v, dq = dq, dk = dk, dv = dv](Range queries) {
    const at::Tensor q_block = q.narrow(2, queries.begin, queries.size());
    const at::Tensor dout_block = dout_BhNd.narrow(2, queries.begin, queries.size());
    const at::Tensor weights = weights_of(q_block, k);
    const at::Tensor factors = mask_factors(dropout, k, queries);
    dv.add_(at::matmul(weights.mul(factors).transpose(2, 3), dout_block));
    const at::Tensor dweights = at::matmul(dout_block, v.transpose(2, 3)).mul_(factors);
    const at::Tensor mean = weights.mul(dweights).sum(-1, true);
    const at::Tensor dscores = dweights.sub_(mean).mul_(weights).mul_(score_scale(q));
    dq.narrow(2, queries.begin, queries.size()).copy_(at::matmul(dscores, k));
    dk.add_(at::matmul(dscores.transpose(2, 3), q_block));
  });
  return dqkv;
}

bool is_half_length(at::ScalarType type) {
  return type == at::kBFloat16 || type == at::kHalf;
}

// What ours multiplies with on the host.
std::string product_text(at::ScalarType type) {
  if (type == at::kDouble) {
    return "BLAS";
  }
  if (type == at::kBFloat16 && has_bf16_block_kernel()) {
    return "oneDNN's block kernel in bf16, with exponentials and statistics in fp32";
  }
  const std::string product = has_block_kernel() ? "oneDNN's block kernel in fp32" : "BLAS in fp32";
  return is_half_length(type) ? product + ", with conversions" : product;
}

std::string why_converted(at::ScalarType type) {
  if (type == at::kHalf) {
    return "; fp16 is not multiplied as such on processors";
  }
  const std::string why = type == at::kBFloat16 ? why_no_bf16_block_kernel() : "";
  return why.empty() ? why : "; " + why;
}

std::string host_text(at::ScalarType type, bool with_dropout) {
  if (choose_attention_kernel(at::kCPU, type, with_dropout) == AttentionKernel::kFused) {
    return std::string("LibTorch's flash attention: ours is faster only with oneDNN's block kernel, which ") +
           (type == at::kDouble ? "has no fp64" : "this processor or LibTorch does not have");
  }
  return "ours, in blocks of queries and keys around " + product_text(type) +
         (with_dropout ? ": it draws the keyed mask of dropout" : ": faster than LibTorch's") + why_converted(type);
}

}  // namespace

at::Tensor fused_attention(const at::Tensor& qkv, int64_t num_heads) {
  return qkv.is_cpu() ? host_attention(qkv, num_heads) : device_attention(qkv, num_heads);
}

at::Tensor masked_attention(const at::Tensor& qkv, int64_t num_heads, const AttentionDropout& dropout) {
  const at::ScalarType type = qkv.scalar_type();
  const at::Tensor out = without_grad([&] { return forward(in_computing_type(qkv), num_heads, dropout).to(type); });
  return record("masked_attention", out, {qkv}, [=](const at::Tensor& dout) {
    const at::Tensor dqkv = backward(in_computing_type(qkv), num_heads, dropout, in_computing_type(dout.contiguous()));
    return std::vector<at::Tensor>{dqkv.to(type)};
  });
}

AttentionKernel choose_attention_kernel(c10::Device device, at::ScalarType type, bool with_dropout) {
  if (!device.is_cpu()) {
    return with_dropout ? AttentionKernel::kMasked : AttentionKernel::kFused;
  }
  // With a block kernel ours is the faster one without dropout too, in half-length types also where it converts them.
  const bool faster = type != at::kDouble && has_block_kernel();
  return with_dropout || faster ? AttentionKernel::kBlocked : AttentionKernel::kFused;
}

std::string attention_kernel_text(c10::Device device, at::ScalarType type, bool with_dropout) {
  if (device.is_cpu()) {
    return host_text(type, with_dropout);
  }
  if (!with_dropout) {
    return device_attention_text(device, type);
  }
  return std::string("ours, from LibTorch's products over blocks of queries") +
         (is_half_length(type) ? ", in fp32" : "") +
         ": it draws the keyed mask of dropout; several times slower than without attention dropout";
}

at::Tensor attend(const at::Tensor& qkv, int64_t num_heads, const AttentionDropout& dropout) {
  if (qkv.numel() == 0) {  // no samples: the products have nothing to multiply
    return qkv.narrow(2, 0, qkv.size(2) / 3);
  }
  switch (choose_attention_kernel(qkv.device(), qkv.scalar_type(), dropout.active())) {
    case AttentionKernel::kFused:
      return fused_attention(qkv, num_heads);
    case AttentionKernel::kBlocked:
      return blocked_attention(qkv, num_heads, dropout);
    case AttentionKernel::kMasked:
      return masked_attention(qkv, num_heads, dropout);
  }
  return {};
}

}  // namespace vit_hybrid::kernels
