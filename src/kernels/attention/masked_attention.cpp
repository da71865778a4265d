// Attention with dropout, a block of queries at a time.
// Shapes: B samples, N tokens, Q queries of a block, h heads of d features.
#include "src/kernels/attention/masked_attention.h"

#include <ATen/OpMathType.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/softmax.h>

#include <cmath>

#include "src/kernels/attention/attention_heads.h"
#include "src/kernels/own_node.h"

namespace vit_hybrid::kernels {

namespace {

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

}  // namespace

at::Tensor masked_attention(const at::Tensor& qkv, int64_t num_heads, const AttentionDropout& dropout) {
  const at::ScalarType type = qkv.scalar_type();
  const at::Tensor out = without_grad([&] { return forward(in_computing_type(qkv), num_heads, dropout).to(type); });
  return record("masked_attention", out, {qkv}, [=](const at::Tensor& dout) {
    const at::Tensor dqkv = backward(in_computing_type(qkv), num_heads, dropout, in_computing_type(dout.contiguous()));
    return std::vector<at::Tensor>{dqkv.to(type)};
  });
}

}  // namespace vit_hybrid::kernels
