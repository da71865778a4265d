// The kernels of attention of few tokens: a block has one head of one sample, a warp 16 tokens at a time.
//
// Scores are exponents to base 2. Forward takes the keys 64 at a time, with the sums of the softmax so far (Milakov and
// Gimelshein, "Online normalizer calculation for softmax", 2018). Backward computes the probabilities P = 2^(S - L)
// twice, once by rows of keys for the gradients of k and v and once by rows of queries for that of q, because the sums
// of either then stay in registers (with dP = dO V^T and D = sum(dO O) by rows: dS = P (dP - D), dq = dS K, dk = dS^T
// Q, dv = P^T dO; Dao et al., "FlashAttention", 2022, appendix B.2).
#include "src/kernels/attention/short_attention_cuda.h"

#include <cmath>

#include "src/kernels/device_instructions.h"
#include "src/kernels/element_vector.h"

namespace vit_hybrid::kernels {

namespace {

static_assert(kTile == kShortAttentionTile);

constexpr int kWarps = kShortAttentionWarps;
// Blocks that a multiprocessor's registers are to hold; with head_dim 80 a block takes too much shared memory for a
// third.
template <int kD>
constexpr int kBlocksAtOnce = kD <= 64 ? 3 : 2;
constexpr int kKeysAtOnce = 64;     // of forward
constexpr int kColumnsAtOnce = 32;  // of backward
constexpr float kLog2OfE = 1.44269504F;

// Where a block's head of a sample begins, in elements.
struct HeadPlace {
  int width, stride;  // from token to token in out, and in qkv
  int64_t qkv, out, logsumexp;

  __device__ explicit HeadPlace(const ShortAttentionShape& shape) {
    const int64_t sample = blockIdx.x / static_cast<unsigned>(shape.heads);
    const int64_t head = blockIdx.x % static_cast<unsigned>(shape.heads);
    width = shape.heads * shape.head_dim;
    stride = 3 * width;
    qkv = sample * shape.tokens * stride + head * shape.head_dim;
    out = sample * shape.tokens * width + head * shape.head_dim;
    logsumexp = (sample * shape.heads + head) * shape.tokens;
  }
};

// Rows of kD elements in shared memory, in pieces of 16 bytes.
template <int kD>
struct SharedRows {
  static constexpr int kPieces = kD / 8;
  static constexpr bool kTurns = kPieces % 8 == 0;
  static constexpr int kRowBytes = static_cast<int>(short_attention_row_bytes(kD));
  static constexpr int kStride = kRowBytes / 16;
  static constexpr int kStagePieces = kWarps * kTile * kStride;  // of all warps of a block

  uint4* pieces;

  // Of `row`, which is `lane` more than a multiple of 8.
  static __device__ int index_of(int row, int lane, int piece) {
    return row * kStride + (kTurns ? piece ^ (lane % 8) : piece);
  }
  __device__ uint4* piece(int row, int index) const { return pieces + index_of(row, row, index); }
};

// Behind a block's matrices each warp has 16 rows, through which it reads and writes its own.
template <int kD>
__device__ inline SharedRows<kD> stage_of_warp(uint4* stages) {
  return {stages + static_cast<int>(threadIdx.x) / kWarpSize * (kTile * SharedRows<kD>::kStride)};
}

// Where a lane reads its row of tiles, in bytes behind the first row: those that lie side by side (as A, or transposed
// as B, whose rows they are), or below each other (as B, whose columns the rows are). Of 16 elements from 16 step on.
template <int kD>
struct LaneOffsets {
  uint32_t side_by_side[kD / kTile], below[kD / kTile];

  __device__ explicit LaneOffsets(int lane) {
    const int row_below = lane / 16 * 8 + lane % 8;
#pragma unroll
    for (int step = 0; step < kD / kTile; ++step) {
      side_by_side[step] = 16U * SharedRows<kD>::index_of(lane % 16, lane, 2 * step + lane / 16);
      below[step] = 16U * SharedRows<kD>::index_of(row_below, lane, 2 * step + lane / 8 % 2);
    }
  }
};

// kTiles rows of 16 queries times as many columns of keys (kD long): c[n] has columns 8 n to 8 n + 7, and b begins at
// `address`.
template <class T, int kD, int kTiles>
__device__ inline void add_scores(float (&c)[2 * kTiles][4], const TileWords (&a)[kD / kTile], uint32_t address,
                                  const LaneOffsets<kD>& offsets) {
#pragma unroll
  for (int step = 0; step < kD / kTile; ++step) {
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      TileWords b;
      load_tiles(b, address + tile * kTile * SharedRows<kD>::kRowBytes + offsets.below[step]);
      multiply_add<T>(c[2 * tile], a[step], b[0], b[1]);
      multiply_add<T>(c[2 * tile + 1], a[step], b[2], b[3]);
    }
  }
}

// Of 16 keys those from `tokens` on are none: padding, for which there is no probability.
__device__ inline void hide_padding(float (&scores)[2][4], int key, int tokens, int lane) {
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const bool is_token = key + i / 4 * 8 + lane % 4 * 2 + i % 2 < tokens;
    scores[i / 4][i % 4] = is_token ? scores[i / 4][i % 4] : -INFINITY;
  }
}

// sums += a b, with b 16 rows of kD from `address` on.
template <class T, int kD>
__device__ inline void add_product(float (&sums)[kD / 8][4], const TileWords& a, uint32_t address,
                                   const LaneOffsets<kD>& offsets) {
#pragma unroll
  for (int step = 0; step < kD / kTile; ++step) {
    TileWords b;
    load_tiles_transposed(b, address + offsets.side_by_side[step]);
    multiply_add<T>(sums[2 * step], a, b[0], b[1]);
    multiply_add<T>(sums[2 * step + 1], a, b[2], b[3]);
  }
}

// 16 rows, `stride` elements apart, of which `rows` are there, from global memory as A. The others repeat the last one:
// nothing of theirs is kept. They come through `stage`, so that whole lines are read.
template <int kD, class T>
__device__ inline void load_rows(TileWords (&a)[kD / kTile], const T* from, int stride, int rows, int lane,
                                 const LaneOffsets<kD>& offsets, const SharedRows<kD>& stage) {
  constexpr int kPieces = SharedRows<kD>::kPieces;
  __syncwarp();
#pragma unroll
  for (int i = lane; i < kTile * kPieces; i += kWarpSize) {
    const int row = i / kPieces, index = i % kPieces;
    copy_to_shared(stage.piece(row, index), from + (row < rows ? row : rows - 1) * stride + index * 8);
  }
  wait_for_copies();
  __syncwarp();
  const uint32_t address = shared_address(stage.pieces);
#pragma unroll
  for (int step = 0; step < kD / kTile; ++step) {
    load_tiles(a[step], address + offsets.side_by_side[step]);
  }
}

// Rows of `stride` elements; zeros behind the last one, to a whole tile.
template <int kD, class T>
__device__ void fill(const SharedRows<kD>& to, const T* from, int stride, int rows) {
  constexpr int kPieces = SharedRows<kD>::kPieces;
  const auto padded = static_cast<int>(short_attention_padded(rows));
  const int at_once = static_cast<int>(blockDim.x) / kPieces;
  const int index = static_cast<int>(threadIdx.x) % kPieces;
  int row = static_cast<int>(threadIdx.x) / kPieces;
  if (row >= at_once) {
    return;
  }
  from += row * stride + index * 8;
  for (; row < padded; row += at_once, from += at_once * stride) {
    if (row < rows) {
      copy_to_shared(to.piece(row, index), from);
    } else {
      *to.piece(row, index) = uint4{0, 0, 0, 0};
    }
  }
}

// A tile of kD columns times `factor`, one for each of a thread's two rows, to rows that are `stride` elements apart,
// but for those from `rows` on. It goes through `stage`, 16 rows that are the warp's own, so that whole lines are
// written.
template <int kD, class T>
__device__ void store_tile(const float (&sums)[kD / 8][4], float factor_0, float factor_1, T* to, int stride, int rows,
                           int lane, const SharedRows<kD>& stage) {
  constexpr int kPieces = SharedRows<kD>::kPieces;
  __syncwarp();
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float factor = half == 0 ? factor_0 : factor_1;
#pragma unroll
    for (int i = 0; i < kD / 8; ++i) {
      reinterpret_cast<uint32_t*>(stage.piece(lane / 4 + 8 * half, i))[lane % 4] =
          pair_of<T>(sums[i][2 * half] * factor, sums[i][2 * half + 1] * factor);
    }
  }
  __syncwarp();
#pragma unroll
  for (int i = 0; i < kTile * kPieces / kWarpSize; ++i) {
    const int row = (lane + i * kWarpSize) / kPieces, index = (lane + i * kWarpSize) % kPieces;
    if (row < rows) {
      *reinterpret_cast<uint4*>(to + row * stride + index * 8) = *stage.piece(row, index);
    }
  }
}

// The most, or the sum, over the four lanes that share a row of C.
__device__ inline float most_of_row(float value) {
  value = fmaxf(value, __shfl_xor_sync(kAllLanes, value, 1));
  return fmaxf(value, __shfl_xor_sync(kAllLanes, value, 2));
}
__device__ inline float sum_of_row(float value) {
  value += __shfl_xor_sync(kAllLanes, value, 1);
  return value + __shfl_xor_sync(kAllLanes, value, 2);
}

// Sums of a softmax over the keys so far, for 16 queries: a thread has two rows of C.
template <int kD>
struct RowSums {
  float values[kD / 8][4] = {};
  float most[2] = {-INFINITY, -INFINITY};  // what the exponents of a row were lessened by, to base 2
  float total[2] = {0.0F, 0.0F};
};

// Goes on with 16 kTiles keys; where it is one tile, they may be none from `tokens` on.
template <class T, int kD, int kTiles>
__device__ inline void add_keys(RowSums<kD>& sums, const TileWords (&query)[kD / kTile], int key, int tokens,
                                uint32_t keys, uint32_t values, float to_base_2, const LaneOffsets<kD>& offsets,
                                int lane) {
  float scores[2 * kTiles][4] = {};
  add_scores<T, kD, kTiles>(scores, query, keys + key * SharedRows<kD>::kRowBytes, offsets);
  if constexpr (kTiles == 1) {
    hide_padding(scores, key, tokens, lane);
  }
  float most[2] = {-INFINITY, -INFINITY};
#pragma unroll
  for (int i = 0; i < 2 * kTiles; ++i) {
    most[0] = fmaxf(most[0], fmaxf(scores[i][0], scores[i][1]));
    most[1] = fmaxf(most[1], fmaxf(scores[i][2], scores[i][3]));
  }
  most[0] = most_of_row(most[0]) * to_base_2;
  most[1] = most_of_row(most[1]) * to_base_2;
  // Sums stay as they are while no probability exceeds 2^8 in their measure.
  constexpr float kMostExponent = 8.0F;
  if (__any_sync(kAllLanes, most[0] > sums.most[0] + kMostExponent || most[1] > sums.most[1] + kMostExponent)) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float now = fmaxf(most[half], sums.most[half]);
      const float factor = power_of_two(sums.most[half] - now);
      sums.most[half] = now;
      sums.total[half] *= factor;
#pragma unroll
      for (int i = 0; i < kD / 8; ++i) {
        sums.values[i][2 * half] *= factor;
        sums.values[i][2 * half + 1] *= factor;
      }
    }
  }
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
    TileWords probabilities;
#pragma unroll
    for (int side = 0; side < 2; ++side) {
      float(&score)[4] = scores[2 * tile + side];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float p0 = power_of_two(fmaf(score[2 * half], to_base_2, -sums.most[half]));
        const float p1 = power_of_two(fmaf(score[2 * half + 1], to_base_2, -sums.most[half]));
        sums.total[half] += p0 + p1;
        probabilities[2 * side + half] = pair_of<T>(p0, p1);
      }
    }
    add_product<T>(sums.values, probabilities, values + (key + tile * kTile) * SharedRows<kD>::kRowBytes, offsets);
  }
}

template <class T, int kD>
__global__ void __launch_bounds__(kWarps* kWarpSize, kBlocksAtOnce<kD>)
    forward_kernel(ShortAttentionForward<T> arrays) {
  VH_SHARED_MEMORY(uint4, shared);
  const int tokens = arrays.shape.tokens, padded = static_cast<int>(short_attention_padded(tokens));
  const SharedRows<kD> keys{shared}, values{shared + padded * SharedRows<kD>::kStride};
  const SharedRows<kD> stage = stage_of_warp<kD>(shared + 2 * padded * SharedRows<kD>::kStride);
  const HeadPlace place(arrays.shape);
  const int width = place.width, stride = place.stride;
  const T* const q = arrays.qkv + place.qkv;
  fill<kD>(keys, q + width, stride, tokens);
  fill<kD>(values, q + 2 * width, stride, tokens);
  wait_for_copies();
  __syncthreads();

  const int lane = static_cast<int>(threadIdx.x) % kWarpSize, group = lane / 4, pair = lane % 4;
  const LaneOffsets<kD> offsets(lane);
  const uint32_t key_address = shared_address(keys.pieces), value_address = shared_address(values.pieces);
  const float to_base_2 = arrays.shape.scale * kLog2OfE;
  for (int row = static_cast<int>(threadIdx.x) / kWarpSize * kTile; row < tokens; row += kWarps * kTile) {
    TileWords query[kD / kTile];
    load_rows<kD>(query, q + row * stride, stride, tokens - row, lane, offsets, stage);
    RowSums<kD> sums;
    int key = 0;
    for (; key + kKeysAtOnce <= tokens; key += kKeysAtOnce) {
      add_keys<T, kD, kKeysAtOnce / kTile>(sums, query, key, tokens, key_address, value_address, to_base_2, offsets,
                                           lane);
    }
    for (; key < padded; key += kTile) {
      add_keys<T, kD, 1>(sums, query, key, tokens, key_address, value_address, to_base_2, offsets, lane);
    }
    const float total[2] = {sum_of_row(sums.total[0]), sum_of_row(sums.total[1])};
    store_tile<kD>(sums.values, 1.0F / total[0], 1.0F / total[1], arrays.out + place.out + row * width, width,
                   tokens - row, lane, stage);
    if (arrays.logsumexp != nullptr && pair == 0) {
      float* const to = arrays.logsumexp + place.logsumexp + row;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        if (row + group + 8 * half < tokens) {
          to[group + 8 * half] = sums.most[half] + log2f(total[half]);
        }
      }
    }
  }
}

// What a warp of backward needs of the two matrices that its block has in shared memory, and of all queries.
template <int kD>
struct BackwardTiles {
  uint32_t first, second;
  float* logsumexp;  // infinite behind the last token: its probabilities are 0
  float* products;   // D
  float to_base_2;
  int tokens, lane;
  LaneOffsets<kD> offsets;
};

// Goes on with 16 kTiles queries, from `query` on, for 16 keys: dvalues += P^T dO, dkeys += dS^T Q.
template <class T, int kD, int kTiles>
__device__ inline void add_queries(float (&dkeys)[kD / 8][4], float (&dvalues)[kD / 8][4],
                                   const BackwardTiles<kD>& tiles, const TileWords (&key)[kD / kTile],
                                   const TileWords (&value)[kD / kTile], int query) {
  float scores[2 * kTiles][4] = {}, dprobabilities[2 * kTiles][4] = {};
  const uint32_t row = query * SharedRows<kD>::kRowBytes;
  add_scores<T, kD, kTiles>(scores, key, tiles.first + row, tiles.offsets);
  add_scores<T, kD, kTiles>(dprobabilities, value, tiles.second + row, tiles.offsets);
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
    TileWords probabilities, gradients;
#pragma unroll
    for (int side = 0; side < 2; ++side) {
      const int i = 2 * tile + side, column = query + 8 * i + 2 * (tiles.lane % 4);
      const auto logsumexp = *reinterpret_cast<const float2*>(tiles.logsumexp + column);
      const auto product = *reinterpret_cast<const float2*>(tiles.products + column);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float p0 = power_of_two(fmaf(scores[i][2 * half], tiles.to_base_2, -logsumexp.x));
        const float p1 = power_of_two(fmaf(scores[i][2 * half + 1], tiles.to_base_2, -logsumexp.y));
        probabilities[2 * side + half] = pair_of<T>(p0, p1);
        gradients[2 * side + half] = pair_of<T>(p0 * (dprobabilities[i][2 * half] - product.x),
                                                p1 * (dprobabilities[i][2 * half + 1] - product.y));
      }
    }
    const uint32_t tile_row = row + tile * kTile * SharedRows<kD>::kRowBytes;
    add_product<T>(dvalues, probabilities, tiles.second + tile_row, tiles.offsets);
    add_product<T>(dkeys, gradients, tiles.first + tile_row, tiles.offsets);
  }
}

// Goes on with 16 kTiles keys, from `key` on, for 16 queries: dqueries += dS K. One tile may have padding.
template <class T, int kD, int kTiles>
__device__ inline void add_keys(float (&dqueries)[kD / 8][4], const BackwardTiles<kD>& tiles,
                                const TileWords (&query)[kD / kTile], const TileWords (&dout)[kD / kTile], int key,
                                const float (&logsumexp)[2], const float (&product)[2]) {
  float scores[2 * kTiles][4] = {}, dprobabilities[2 * kTiles][4] = {};
  const uint32_t row = key * SharedRows<kD>::kRowBytes;
  add_scores<T, kD, kTiles>(scores, query, tiles.first + row, tiles.offsets);
  if constexpr (kTiles == 1) {
    hide_padding(scores, key, tiles.tokens, tiles.lane);
  }
  add_scores<T, kD, kTiles>(dprobabilities, dout, tiles.second + row, tiles.offsets);
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
    TileWords gradients;
#pragma unroll
    for (int side = 0; side < 2; ++side) {
      const int i = 2 * tile + side;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float p0 = power_of_two(fmaf(scores[i][2 * half], tiles.to_base_2, -logsumexp[half]));
        const float p1 = power_of_two(fmaf(scores[i][2 * half + 1], tiles.to_base_2, -logsumexp[half]));
        gradients[2 * side + half] = pair_of<T>(p0 * (dprobabilities[i][2 * half] - product[half]),
                                                p1 * (dprobabilities[i][2 * half + 1] - product[half]));
      }
    }
    add_product<T>(dqueries, gradients, tiles.first + row + tile * kTile * SharedRows<kD>::kRowBytes, tiles.offsets);
  }
}

// Rows of D from the fragments of dO: the same elements of O are read.
template <int kD, class T>
__device__ inline void add_row_products(float (&product)[2], const TileWords (&dout)[kD / kTile], const T* out,
                                        int stride, int rows, int lane, const LaneOffsets<kD>& offsets,
                                        const SharedRows<kD>& stage) {
  TileWords outs[kD / kTile];
  load_rows<kD>(outs, out, stride, rows, lane, offsets, stage);
#pragma unroll
  for (int step = 0; step < kD / kTile; ++step) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const auto left = load_vector<2>(reinterpret_cast<const T*>(&outs[step][i]));
      const auto right = load_vector<2>(reinterpret_cast<const T*>(&dout[step][i]));
      product[i % 2] += static_cast<float>(left[0]) * static_cast<float>(right[0]) +
                        static_cast<float>(left[1]) * static_cast<float>(right[1]);
    }
  }
  product[0] = sum_of_row(product[0]);
  product[1] = sum_of_row(product[1]);
}

template <class T, int kD>
__global__ void __launch_bounds__(kWarps* kWarpSize, kBlocksAtOnce<kD>)
    backward_kernel(ShortAttentionBackward<T> arrays) {
  VH_SHARED_MEMORY(uint4, shared);
  const int tokens = arrays.shape.tokens, padded = static_cast<int>(short_attention_padded(tokens));
  const int pieces = padded * SharedRows<kD>::kStride;
  const SharedRows<kD> first{shared}, second{shared + pieces};
  const HeadPlace place(arrays.shape);
  const int width = place.width, stride = place.stride;
  const T* const q = arrays.qkv + place.qkv;
  const T* const out = arrays.out + place.out;
  const T* const dout = arrays.dout + place.out;
  const float* const logsumexp = arrays.logsumexp + place.logsumexp;
  T* const dq = arrays.dqkv + place.qkv;
  const float scale = arrays.shape.scale;
  const SharedRows<kD> stage = stage_of_warp<kD>(shared + 2 * pieces);
  auto* const floats = reinterpret_cast<float*>(shared + 2 * pieces + SharedRows<kD>::kStagePieces);
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize,
            first_row = static_cast<int>(threadIdx.x) / kWarpSize * kTile;
  const BackwardTiles<kD> tiles{shared_address(first.pieces),
                                shared_address(second.pieces),
                                floats,
                                floats + padded,
                                scale * kLog2OfE,
                                tokens,
                                lane,
                                LaneOffsets<kD>(lane)};

  fill<kD>(first, q + width, stride, tokens);
  fill<kD>(second, q + 2 * width, stride, tokens);
  wait_for_copies();
  __syncthreads();
  for (int row = first_row; row < tokens; row += kWarps * kTile) {
    TileWords queries[kD / kTile], douts[kD / kTile];
    load_rows<kD>(queries, q + row * stride, stride, tokens - row, lane, tiles.offsets, stage);
    load_rows<kD>(douts, dout + row * width, width, tokens - row, lane, tiles.offsets, stage);
    float product[2] = {};
    add_row_products<kD>(product, douts, out + row * width, width, tokens - row, lane, tiles.offsets, stage);
    float exponent[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int query = row + lane / 4 + 8 * half;
      exponent[half] = query < tokens ? logsumexp[query] : INFINITY;
      if (lane % 4 == 0) {
        tiles.logsumexp[query] = exponent[half];
        tiles.products[query] = product[half];
      }
    }
    float dqueries[kD / 8][4] = {};
    int key = 0;
    for (; key + kColumnsAtOnce <= tokens; key += kColumnsAtOnce) {
      add_keys<T, kD, kColumnsAtOnce / kTile>(dqueries, tiles, queries, douts, key, exponent, product);
    }
    for (; key < padded; key += kTile) {
      add_keys<T, kD, 1>(dqueries, tiles, queries, douts, key, exponent, product);
    }
    store_tile<kD>(dqueries, scale, scale, dq + row * stride, stride, tokens - row, lane, stage);
  }
  __syncthreads();

  fill<kD>(first, q, stride, tokens);
  fill<kD>(second, dout, width, tokens);
  wait_for_copies();
  __syncthreads();
  for (int row = first_row; row < tokens; row += kWarps * kTile) {
    TileWords keys[kD / kTile], values[kD / kTile];
    load_rows<kD>(keys, q + width + row * stride, stride, tokens - row, lane, tiles.offsets, stage);
    load_rows<kD>(values, q + 2 * width + row * stride, stride, tokens - row, lane, tiles.offsets, stage);
    float dkeys[kD / 8][4] = {}, dvalues[kD / 8][4] = {};
    int query = 0;
    for (; query + kColumnsAtOnce <= padded; query += kColumnsAtOnce) {
      add_queries<T, kD, kColumnsAtOnce / kTile>(dkeys, dvalues, tiles, keys, values, query);
    }
    for (; query < padded; query += kTile) {
      add_queries<T, kD, 1>(dkeys, dvalues, tiles, keys, values, query);
    }
    T* const to = dq + width + row * stride;
    store_tile<kD>(dkeys, scale, scale, to, stride, tokens - row, lane, stage);
    store_tile<kD>(dvalues, 1.0F, 1.0F, to + width, stride, tokens - row, lane, stage);
  }
}

template <class Arrays>
void start(void (*kernel)(Arrays), const Arrays& arrays, int64_t bytes, CUstream_st* stream) {
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes));
  const auto blocks = static_cast<unsigned>(arrays.shape.samples * arrays.shape.heads);
  kernel<<<blocks, kWarps * kWarpSize, bytes, stream>>>(arrays);
}

}  // namespace

template <class T>
void launch_short_attention(const ShortAttentionForward<T>& arrays, CUstream_st* stream) {
  start(arrays.shape.head_dim == 64 ? forward_kernel<T, 64> : forward_kernel<T, 80>, arrays,
        short_attention_bytes(arrays.shape.tokens, arrays.shape.head_dim), stream);
}
template <class T>
void launch_short_attention(const ShortAttentionBackward<T>& arrays, CUstream_st* stream) {
  start(arrays.shape.head_dim == 64 ? backward_kernel<T, 64> : backward_kernel<T, 80>, arrays,
        short_attention_backward_bytes(arrays.shape.tokens, arrays.shape.head_dim), stream);
}

template void launch_short_attention(const ShortAttentionForward<c10::BFloat16>&, CUstream_st*);
template void launch_short_attention(const ShortAttentionForward<c10::Half>&, CUstream_st*);
template void launch_short_attention(const ShortAttentionBackward<c10::BFloat16>&, CUstream_st*);
template void launch_short_attention(const ShortAttentionBackward<c10::Half>&, CUstream_st*);

}  // namespace vit_hybrid::kernels
