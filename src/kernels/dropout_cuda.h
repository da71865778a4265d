// Dropout, stochastic depth, residual sums and masks of attention on a GPU: the work of a thread, and the launches on
// plain arrays, each asynchronous on `stream`.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "src/base/philox.h"
#include "src/kernels/element_vector.h"
#include "src/kernels/layer_norm_arithmetic.h"

struct CUstream_st;  // cudaStream_t points to it

namespace vit_hybrid::kernels {

/// to = scale a (with null `b`), or residual_sum(a, b, scale); of `elements` elements of each sample.
template <class T>
struct ScaledSum {
  using F = ComputeType<T>;
  const T* a;
  const T* b;
  const F* scales;  ///< of samples, or null: 1
  T* to;
  int64_t elements;
};

template <int kWidth, class T>
VH_HOST_DEVICE inline void scaled_sum_vector(const ScaledSum<T>& s, int64_t element, ComputeType<T> scale) {
  using F = ComputeType<T>;
  const auto a = load_vector<kWidth>(s.a + element);
  const auto b = load_vector<kWidth>((s.b != nullptr ? s.b : s.a) + element);
  ElementVector<T, kWidth> to;
  VH_UNROLL
  for (int k = 0; k < kWidth; ++k) {
    const F value = static_cast<F>(a[k]);
    to[k] = static_cast<T>(s.b != nullptr ? residual_sum(value, static_cast<F>(b[k]), scale) : scale * value);
  }
  store_vector(s.to + element, to);
}

/// The split of a sample's elements, the same for all samples.
template <class T>
VectorSplit scaled_sum_split(const ScaledSum<T>& s) {
  const VectorSplit split =
      make_vector_split(s.elements, kVectorWidth<T>, {{s.a, sizeof(T)}, {s.b, sizeof(T)}, {s.to, sizeof(T)}});
  return s.elements % split.width == 0 ? split : VectorSplit{s.elements, s.elements, 0, split.width};
}

/// A thread's share of the elements of one sample, which `split` splits.
template <class T>
VH_HOST_DEVICE inline void scaled_sum_share(const ScaledSum<T>& s, int64_t sample, const VectorSplit& split,
                                            const ThreadShare& share) {
  const ComputeType<T> scale = s.scales == nullptr ? ComputeType<T>(1) : s.scales[sample];
  const int64_t begin = sample * s.elements;
  for (int64_t i = share.first; i < share.end_among(split.vectors); i += share.stride) {
    scaled_sum_vector<kVectorWidth<T>>(s, begin + split.vector(i), scale);
  }
  for (int64_t i = share.first; i < share.end_among(split.num_singles()); i += share.stride) {
    scaled_sum_vector<1>(s, begin + split.single(i), scale);
  }
}

/// A stream of draws as a kernel sees it: RandomStream::key(), and the threshold from which on a draw is kept.
struct DrawStream {
  std::array<uint32_t, 2> key;
  uint32_t threshold;

  VH_HOST_DEVICE PhiloxBlock block(uint64_t i, uint64_t sample) const {
    return philox4x32<uint32_t>(key, {low_word(i), high_word(i), low_word(sample), high_word(sample)});
  }
  /// Draw `draw` of a sample.
  VH_HOST_DEVICE uint32_t bits(uint64_t draw, uint64_t sample) const {
    const PhiloxBlock words = block(draw / 4, sample);
    const bool second = draw % 2 != 0;  // not indexed by a variable: the words stay in registers
    return draw % 4 < 2 ? (second ? words[1] : words[0]) : (second ? words[3] : words[2]);
  }
};

/// y = keep_scale x where the draw is kept, else 0 x. Element (token, f) of a sample has draw token num_features +
/// first_feature + f.
template <class T>
struct DropoutPass {
  using F = ComputeType<T>;
  const T* x;
  T* y;
  uint32_t tokens;
  uint32_t features;  ///< of a token in x
  int64_t first_feature;
  int64_t num_features;
  F keep_scale;
  DrawStream stream;

  VH_HOST_DEVICE uint64_t draw_of(uint32_t element) const {
    return static_cast<uint64_t>(element / features * num_features + first_feature + element % features);
  }
};

template <class T>
VH_HOST_DEVICE inline T dropped(const DropoutPass<T>& d, T x, uint32_t bits) {
  using F = ComputeType<T>;
  return static_cast<T>(static_cast<F>(x) * (bits >= d.stream.threshold ? d.keep_scale : F(0)));
}

/// `kWidth` neighbouring elements of a token, from `element` of the sample on. kWidth and the first draw are multiples
/// of 4, so that each block of draws is made once.
template <int kWidth, class T>
VH_HOST_DEVICE inline void dropout_vector(const DropoutPass<T>& d, int64_t begin, uint32_t element, uint64_t sample) {
  static_assert(kWidth % 4 == 0, "whole blocks of draws");
  const uint64_t first_block = d.draw_of(element) / 4;
  auto x = load_vector<kWidth>(d.x + begin + element);
  VH_UNROLL
  for (int i = 0; i < kWidth / 4; ++i) {
    const PhiloxBlock block = d.stream.block(first_block + static_cast<uint64_t>(i), sample);
    VH_UNROLL
    for (int k = 0; k < 4; ++k) {
      x[4 * i + k] = dropped(d, x[4 * i + k], block[static_cast<size_t>(k)]);
    }
  }
  store_vector(d.y + begin + element, x);
}

/// Elements of a vector: of whole blocks of draws.
template <class T>
inline constexpr int kDropoutWidth = kVectorWidth<T> < 4 ? 4 : kVectorWidth<T>;

/// The split of a sample's elements: vectors where they lie within tokens and begin with a block of draws.
template <class T>
VectorSplit dropout_split(const DropoutPass<T>& d) {
  constexpr int kWidth = kDropoutWidth<T>;
  const int64_t elements = static_cast<int64_t>(d.tokens) * d.features;
  const VectorSplit split = make_vector_split(elements, kWidth, {{d.x, sizeof(T)}, {d.y, sizeof(T)}});
  const bool whole_blocks = d.features % kWidth == 0 && d.num_features % 4 == 0 && d.first_feature % 4 == 0;
  return whole_blocks && split.head == 0 ? split : VectorSplit{elements, elements, 0, kWidth};
}

/// A thread's share of the elements of the `row`th sample, whose number is `sample`.
template <class T>
VH_HOST_DEVICE inline void dropout_share(const DropoutPass<T>& d, int64_t row, uint64_t sample,
                                         const VectorSplit& split, const ThreadShare& share) {
  const int64_t begin = row * d.tokens * static_cast<int64_t>(d.features);
  for (int64_t i = share.first; i < share.end_among(split.vectors); i += share.stride) {
    dropout_vector<kDropoutWidth<T>>(d, begin, static_cast<uint32_t>(split.vector(i)), sample);
  }
  for (int64_t i = share.first; i < share.end_among(split.num_singles()); i += share.stride) {
    const auto element = static_cast<uint32_t>(split.single(i));
    d.y[begin + element] = dropped(d, d.x[begin + element], d.stream.bits(d.draw_of(element), sample));
  }
}

/// keep[i] = 1 if draw first + i is kept, else 0, for the draws of block number `block` among those of [first, first +
/// count): block 0 holds the first of them.
VH_HOST_DEVICE inline void keep_block(const DrawStream& stream, uint64_t sample, uint64_t first, int64_t count,
                                      int64_t block, uint8_t* keep) {
  const PhiloxBlock bits = stream.block(first / 4 + static_cast<uint64_t>(block), sample);
  const int64_t offset = 4 * block - static_cast<int64_t>(first % 4);
  VH_UNROLL
  for (int k = 0; k < 4; ++k) {
    if (offset + k >= 0 && offset + k < count) {
      keep[offset + k] = bits[static_cast<size_t>(k)] >= stream.threshold ? 1 : 0;
    }
  }
}

/// Blocks of draws that [first, first + count) touches.
VH_HOST_DEVICE inline int64_t num_blocks_of(uint64_t first, int64_t count) {
  return (static_cast<int64_t>(first % 4) + count + 3) / 4;
}

/// Numbers of samples, passed to a kernel by value: nothing is copied to the device before.
struct SampleNumbers {
  static constexpr int kMost = 256;
  int64_t numbers[kMost];
  int count;
};

/// scaled_sum_share() of `samples` samples. float, double, BFloat16 and Half.
template <class T>
void launch_scaled_sum(const ScaledSum<T>& sum, int64_t samples, CUstream_st* stream);

/// scales[n] = keep_scale where the draw with the number of sample n is kept, else 0. F: float or double.
template <class F>
void launch_path_scales(const DrawStream& draws, const SampleNumbers& samples, double keep_scale, F* scales,
                        CUstream_st* stream);

/// dropout_share() of some samples; the arrays of `pass` begin with the first of them.
template <class T>
void launch_dropout(const DropoutPass<T>& pass, const SampleNumbers& samples, CUstream_st* stream);

/// A block of a keyed attention mask: keep[n, h, q, k] for queries [first_query, + queries) and keys [first_key, +
/// keys) of `tokens`; the draw is ((first_head + h) tokens + query) tokens + key.
struct AttentionMask {
  DrawStream stream;
  int64_t first_head;
  int64_t heads;
  int64_t tokens;
  int64_t first_query;
  int64_t queries;
  int64_t first_key;
  int64_t keys;
  uint8_t* keep;

  /// First draw of row (n, h, q), flat.
  VH_HOST_DEVICE uint64_t first_draw(int64_t row) const {
    const int64_t head = first_head + row / queries % heads;
    return static_cast<uint64_t>((head * tokens + first_query + row % queries) * tokens + first_key);
  }
};
void launch_attention_mask(const AttentionMask& mask, const SampleNumbers& samples, CUstream_st* stream);

}  // namespace vit_hybrid::kernels
