// The views of q, k, v and of attention's result by heads.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>

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

}  // namespace vit_hybrid::kernels
