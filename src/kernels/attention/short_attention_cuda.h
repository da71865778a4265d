// Attention of few tokens on a GPU: the keys and values of a head lie whole in the shared memory of one block.
//
// The kernels of libraries are made for thousands of tokens: they fill tiles of 64 or 128 of them, add to the gradient
// of q in memory from several blocks, and return the gradients of q, k and v as three tensors. With the 197 or 257
// tokens of an image that costs much. Here a block has a whole head: tokens are padded to 16, every sum stays in the
// registers of one warp, in a fixed order, and the gradient of qkv is written in its place.
#pragma once

#include <cstdint>

struct CUstream_st;  // cudaStream_t points to it

namespace vit_hybrid::kernels {

struct ShortAttentionShape {
  int64_t samples;
  int tokens;
  int heads;
  int head_dim;
  float scale;  ///< of the scores
};

/// softmax(scale q k^T) v for each sample and head.
template <class T>
struct ShortAttentionForward {
  const T* qkv;      ///< [samples, tokens, 3, heads, head_dim]
  T* out;            ///< [samples, tokens, heads, head_dim]
  float* logsumexp;  ///< [samples, heads, tokens], of the scaled scores to base 2, for backward; null: not kept
  ShortAttentionShape shape;
};

template <class T>
struct ShortAttentionBackward {
  const T* qkv;
  const T* out;
  const T* dout;  ///< as out
  const float* logsumexp;
  T* dqkv;  ///< as qkv
  ShortAttentionShape shape;
};

/// Tokens are padded to whole tiles of so many.
inline constexpr int64_t kShortAttentionTile = 16;
constexpr int64_t short_attention_padded(int64_t tokens) {
  return (tokens + kShortAttentionTile - 1) / kShortAttentionTile * kShortAttentionTile;
}

/// Bytes of a row of q, k, v or out in shared memory: such that the same 16 bytes of eight neighbouring rows lie in
/// eight different groups of banks. Where the row has a multiple of eight pieces of 16 bytes, they are taken in turns
/// instead.
constexpr int64_t short_attention_row_bytes(int64_t head_dim) {
  const int64_t pieces = head_dim / 8;
  return 16 * (pieces % 8 == 0 || pieces % 2 == 1 ? pieces : pieces + 1);
}

/// There are kernels for the heads of the ViTs from Ti to H.
constexpr bool has_short_attention(int64_t head_dim) {
  return head_dim == 64 || head_dim == 80;
}

/// Shared memory that a block of forward takes: keys, values, and of each of its warps a tile of results. Backward
/// takes two numbers for each token more.
inline constexpr int64_t kShortAttentionWarps = 4;
constexpr int64_t short_attention_bytes(int64_t tokens, int64_t head_dim) {
  return (2 * short_attention_padded(tokens) + kShortAttentionWarps * kShortAttentionTile) *
         short_attention_row_bytes(head_dim);
}
constexpr int64_t short_attention_backward_bytes(int64_t tokens, int64_t head_dim) {
  const auto bytes_of_numbers = 2 * static_cast<int64_t>(sizeof(float));
  return short_attention_bytes(tokens, head_dim) + short_attention_padded(tokens) * bytes_of_numbers;
}

/// Asynchronous on `stream`. BFloat16 and Half, has_short_attention(), all arrays aligned to 16 bytes, on a GPU of
/// sm_80 or newer whose blocks may have short_attention_backward_bytes().
template <class T>
void launch_short_attention(const ShortAttentionForward<T>& arrays, CUstream_st* stream);
template <class T>
void launch_short_attention(const ShortAttentionBackward<T>& arrays, CUstream_st* stream);

}  // namespace vit_hybrid::kernels
