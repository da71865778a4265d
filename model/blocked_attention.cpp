// blocked_attention(): allocation and the autograd node.
#include "model/blocked_attention.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <cmath>

#include "model/blocked_attention_kernels.h"
#include "parallel/tensor/own_node.h"

namespace vit_hybrid::model {

namespace {

// Scores of a block, 128 x 512 in fp32, are 256 KiB: they stay in a second-level cache.
constexpr int64_t kQueryBlock = 128;
constexpr int64_t kKeyBlock = 512;

Partition blocks_of(int64_t tokens, int64_t block) {
  return Partition(tokens, (tokens + block - 1) / block);
}

}  // namespace

Partition AttentionExtents::query_blocks() const {
  return blocks_of(tokens, kQueryBlock);
}
Partition AttentionExtents::key_blocks() const {
  return blocks_of(tokens, kKeyBlock);
}
double AttentionExtents::scale() const {
  return 1.0 / std::sqrt(static_cast<double>(head_dim));
}

at::Tensor blocked_attention(const at::Tensor& qkv, int64_t num_heads, const AttentionDropout& dropout) {
  const AttentionExtents extents{qkv.size(0), qkv.size(1), num_heads, qkv.size(2) / (3 * num_heads)};
  const at::Tensor input = qkv.contiguous();
  const at::Tensor out = at::empty({extents.samples, extents.tokens, extents.width()}, qkv.options());
  const at::Tensor logsumexp = at::empty({extents.matrices(), extents.tokens}, qkv.options());
  attention_forward(extents, dropout, input, out, logsumexp);
  const auto backward = [extents, dropout, input, out, logsumexp](const at::Tensor& dout) {
    const at::Tensor dqkv = at::empty_like(input);
    attention_backward(extents, dropout, input, out, logsumexp, dout.contiguous(), dqkv);
    return std::vector<at::Tensor>{dqkv};
  };
  return tensor::record("blocked_attention", out, {qkv}, backward);
}

}  // namespace vit_hybrid::model
