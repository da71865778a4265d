// The two kernels behind blocked_attention().
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "model/attention_dropout.h"
#include "parallel/tensor/transpose.h"
#include "src/base/partition.h"

namespace vit_hybrid::model {

/// Extents of one attention, and where its operands lie in qkv [B, N, 3 h d] and in out [B, N, h d].
struct AttentionExtents {
  int64_t samples;
  int64_t tokens;
  int64_t heads;
  int64_t head_dim;

  int64_t matrices() const { return samples * heads; }
  int64_t width() const { return heads * head_dim; }
  int64_t qkv_stride() const { return 3 * width(); }
  /// First element of q (part 0), k (1) or v (2) of matrix `m` = sample * heads + head; rows are qkv_stride() apart.
  int64_t qkv_offset(int64_t m, int64_t part) const {
    return m / heads * tokens * qkv_stride() + part * width() + m % heads * head_dim;
  }
  /// First element of matrix `m` in a tensor of the shape of out; rows are width() apart.
  int64_t out_offset(int64_t m) const { return m / heads * tokens * width() + m % heads * head_dim; }
  /// Blocks of queries and of keys: nearly equal parts, so that at most two sizes occur.
  Partition query_blocks() const;
  Partition key_blocks() const;
  double scale() const;
};

/// out [B, N, h d] and logsumexp [B h, N] from qkv.
void attention_forward(const AttentionExtents& extents, const AttentionDropout& dropout, const at::Tensor& qkv,
                       const at::Tensor& out, const at::Tensor& logsumexp);

/// dqkv [B, N, 3 h d] (every element is written) from the gradient of out.
void attention_backward(const AttentionExtents& extents, const AttentionDropout& dropout, const at::Tensor& qkv,
                        const at::Tensor& out, const at::Tensor& logsumexp, const at::Tensor& dout,
                        const at::Tensor& dqkv);

/// to [head_dim, rows.size()] = the rows `rows` of from [tokens, head_dim] (row stride `stride`) transposed.
template <class T>
void transpose_rows(const T* from, int64_t stride, Range rows, int64_t head_dim, T* to) {
  tensor::transpose_block(from + rows.begin * stride, stride, rows.size(), head_dim, to, rows.size());
}

}  // namespace vit_hybrid::model
