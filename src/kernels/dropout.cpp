// Dropout: keyed masks and their application, sums with scaled branches, and the autograd nodes.
#include "src/kernels/dropout.h"

#include <ATen/OpMathType.h>
#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "src/base/autograd_node.h"
#include "src/base/error.h"
#include "src/base/philox.h"
#include "src/base/text.h"
#include "src/kernels/half_conversion.h"
#include "src/kernels/lanes.h"
#include "src/kernels/layer_norm.h"

namespace vit_hybrid::kernels {

namespace {

constexpr int64_t kSitesPerUnit = 16;
constexpr int64_t kElements = 1 << 12;  // of a thread at least

void check_samples(const at::Tensor& x, const SampleContext& context) {
  VH_ASSERT(x.size(0) == static_cast<int64_t>(context.samples.size()),
            str(x.size(0), " rows for ", context.samples.size(), " sample numbers"));
}

// Calls `use(begin, end)` for parts of the rows of x [B, N, F], on all threads.
template <class Use>
void for_row_parts(const at::Tensor& x, const Use& use) {
  at::parallel_for(0, x.size(0) * x.size(1), kElements / std::max<int64_t>(x.size(2), 1) + 1, use);
}

template <class T>
void drop_on_host(const at::Tensor& x, const KeyedDrop& drop, const DrawPlaces& places, const Dropped& out) {
  const int64_t tokens = x.size(1);
  const int64_t width = x.size(2);
  const auto scale = static_cast<typename FloatRow<T>::Float>(drop.keep_scale);
  for_row_parts(x, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const auto sample = static_cast<uint64_t>(drop.samples[static_cast<size_t>(row / tokens)]);
      const int64_t first = row % tokens * places.num_features + places.features.begin;
      uint8_t* const keep = out.keep.mutable_data_ptr<uint8_t>() + row * width;
      fill_keep_row(drop.stream, drop.threshold, sample, static_cast<uint64_t>(first), width, keep);
      keep_row(x.const_data_ptr<T>() + row * width, keep, scale, out.y.mutable_data_ptr<T>() + row * width, width);
    }
  });
}

template <class T>
void drop_backward_on_host(const at::Tensor& dy, const at::Tensor& keep, double keep_scale, const at::Tensor& dx) {
  const int64_t width = dy.size(2);
  const auto scale = static_cast<typename FloatRow<T>::Float>(keep_scale);
  for_row_parts(dy, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin * width; i < end * width; i += width) {
      keep_row(dy.const_data_ptr<T>() + i, keep.const_data_ptr<uint8_t>() + i, scale, dx.mutable_data_ptr<T>() + i,
               width);
    }
  });
}

template <class F>
at::Tensor scales_on_host(const KeyedDrop& drop) {
  const auto count = static_cast<int64_t>(drop.samples.size());
  const at::Tensor scales = at::empty({count}, at::TensorOptions(c10::CppTypeToScalarType<F>::value));
  for (int64_t n = 0; n < count; ++n) {
    const auto sample = static_cast<uint64_t>(drop.samples[static_cast<size_t>(n)]);
    const bool kept = drop.stream.bits(sample) >= drop.threshold;
    scales.mutable_data_ptr<F>()[n] = kept ? static_cast<F>(drop.keep_scale) : F(0);
  }
  return scales;
}

constexpr int64_t kRow = 1024;               // elements that are computed at a time
constexpr int64_t kStripElements = 1 << 15;  // of a thread at least

// residual + scale x -> to, where a null residual is 0; to may be x.
template <class T>
void add_scaled(const at::Tensor& residual, const at::Tensor& x, const at::Tensor& scales, const at::Tensor& to) {
  using F = typename FloatRow<T>::Float;
  const int64_t size = x.size(0) > 0 ? x.numel() / x.size(0) : 0;
  const int64_t strips = (size + kRow - 1) / kRow;
  const SampleScales<F> scale_of(scales, x, x.size(0) * strips);
  at::parallel_for(0, x.size(0) * strips, kStripElements / kRow, [&](int64_t begin, int64_t end) {
    for (int64_t strip = begin; strip < end; ++strip) {
      const int64_t done = strip % strips * kRow;
      const int64_t offset = strip / strips * size + done;
      const T* const kept = residual.defined() ? residual.const_data_ptr<T>() + offset : nullptr;
      residual_row(kept, x.const_data_ptr<T>() + offset, scale_of.of_row(strip), to.mutable_data_ptr<T>() + offset,
                   std::min(kRow, size - done));
    }
  });
}

}  // namespace

RandomStream DropKey::stream(Purpose purpose, const SampleContext& context) const {
  const auto place = static_cast<uint64_t>(unit * kSitesPerUnit) + static_cast<uint64_t>(site);
  return RandomStream(context.seed, purpose, static_cast<uint64_t>(context.step), place);
}

uint32_t drop_threshold(double rate) {
  return static_cast<uint32_t>(std::floor(rate * 0x1p32));
}

void fill_keep_row(const RandomStream& stream, uint32_t threshold, uint64_t sample, uint64_t first, int64_t count,
                   uint8_t* keep) {
  constexpr int64_t kBatch = 256;
  std::array<uint32_t, kBatch> draws;
  for (int64_t done = 0; done < count; done += kBatch) {
    const int64_t size = std::min(kBatch, count - done);
    stream.fill_bits(first + static_cast<uint64_t>(done), sample, {draws.data(), static_cast<size_t>(size)});
    for (int64_t i = 0; i < size; ++i) {
      keep[done + i] = draws[static_cast<size_t>(i)] >= threshold ? 1 : 0;
    }
  }
}

KeyedDrop::KeyedDrop(const DropKey& key, Purpose purpose, const SampleContext& context)
    : stream(key.stream(purpose, context)),
      threshold(drop_threshold(key.rate)),
      keep_scale(1.0 / (1.0 - key.rate)),
      samples(context.samples) {}

Dropped drop_features(const at::Tensor& x, const KeyedDrop& drop, const DrawPlaces& places) {
  if (!x.is_cpu()) {
    return device_dropout(x, drop, places);
  }
  const Dropped out{at::empty_like(x), at::empty_like(x, x.options().dtype(at::kByte))};
  with_float_type(x.scalar_type(), [&](auto zero) { drop_on_host<decltype(zero)>(x, drop, places, out); });
  return out;
}

at::Tensor drop_features_backward(const at::Tensor& dy, const at::Tensor& keep, const KeyedDrop& drop,
                                  const DrawPlaces& places) {
  if (!dy.is_cpu()) {
    return device_dropout(dy, drop, places).y;
  }
  at::Tensor dx = at::empty_like(dy);
  with_float_type(dy.scalar_type(),
                  [&](auto zero) { drop_backward_on_host<decltype(zero)>(dy, keep, drop.keep_scale, dx); });
  return dx;
}

at::Tensor path_scales(const at::Tensor& x, const DropKey& key, const SampleContext& context) {
  if (!key.drops(context)) {
    return at::Tensor();
  }
  check_samples(x, context);
  const KeyedDrop drop(key, Purpose::kDropPath, context);
  if (!x.is_cpu()) {
    return device_path_scales(drop, x.options().dtype(at::toOpMathType(x.scalar_type())));
  }
  return x.scalar_type() == at::kDouble ? scales_on_host<double>(drop) : scales_on_host<float>(drop);
}

at::Tensor dropout(const at::Tensor& x, Range features, int64_t num_features, const DropKey& key,
                   const SampleContext& context) {
  if (!key.drops(context)) {
    return x;
  }
  check_samples(x, context);
  const KeyedDrop drop(key, Purpose::kDropout, context);
  const DrawPlaces places{features, num_features};
  const auto [y, keep] = without_grad([&] { return drop_features(x.contiguous(), drop, places); });
  const auto backward = [keep = keep, drop, places](const at::Tensor& dy) {
    return std::vector<at::Tensor>{drop_features_backward(dy.contiguous(), keep, drop, places)};
  };
  return record("dropout", y, {x}, backward);
}

at::Tensor add_residual(const at::Tensor& residual, const at::Tensor& branch, const DropKey& key,
                        const SampleContext& context) {
  const at::Tensor scales = path_scales(branch, key, context);
  const at::Tensor sum = without_grad([&] { return residual_sum(residual.contiguous(), branch, scales); });
  return record("add_residual", sum, {residual, branch}, [scales](const at::Tensor& dy) {
    return std::vector<at::Tensor>{dy, branch_gradient(dy, scales)};
  });
}

at::Tensor residual_sum(const at::Tensor& residual, const at::Tensor& branch, const at::Tensor& scales) {
  if (!branch.is_cpu()) {
    return device_residual_sum(residual, branch, scales);
  }
  with_float_type(branch.scalar_type(),
                  [&](auto zero) { add_scaled<decltype(zero)>(residual.contiguous(), branch, scales, branch); });
  return branch;
}

at::Tensor scale_samples(const at::Tensor& x, const at::Tensor& scales) {
  if (!x.is_cpu()) {
    return device_scale_samples(x, scales);
  }
  at::Tensor scaled = at::empty_like(x);
  with_float_type(x.scalar_type(), [&](auto zero) { add_scaled<decltype(zero)>(at::Tensor(), x, scales, scaled); });
  return scaled;
}

at::Tensor branch_gradient(const at::Tensor& dsum, const at::Tensor& scales) {
  return scales.defined() ? scale_samples(dsum.contiguous(), scales) : dsum;
}

// Masks of attention dropout: many Philox blocks side by side in vectors.

namespace {

constexpr int64_t kDraws = 4;    // of a block
constexpr int64_t kBlocks = 8;   // drawn together
constexpr int64_t kBatch = 512;  // draws of a row that are made before they are copied

using Key = std::array<uint32_t, 2>;

// keep[4 k + i] = 1 if draw i of block first + k is at least the threshold, else 0, for k in [0, kBlocks).
void fill_blocks(Key key, uint64_t first, uint64_t sample, uint32_t threshold, uint8_t* keep) {
  for (uint64_t k = 0; k < kBlocks; ++k) {
    const uint64_t i = first + k;
    const PhiloxBlock block = philox4x32(key, {low_word(i), high_word(i), low_word(sample), high_word(sample)});
    for (const uint32_t draw : block) {
      *keep++ = draw >= threshold ? 1 : 0;
    }
  }
}

#if defined(__x86_64__)

#define VH_MASKS __attribute__((target("avx512f,avx512bw,avx512vl")))

// The same by philox4x32() in the 64-bit elements of registers, of which the lower halves count. Compilers make three
// multiplications of each of its.
VH_MASKS void fill_blocks_in_registers(Key key, uint64_t first, uint64_t sample, uint32_t threshold, uint8_t* keep) {
  const __m512i multiplier0 = _mm512_set1_epi64(0xD2511F53);
  const __m512i multiplier1 = _mm512_set1_epi64(0xCD9E8D57);
  __m512i word0 =
      _mm512_add_epi64(_mm512_set1_epi64(static_cast<int64_t>(first)), _mm512_setr_epi64(0, 1, 2, 3, 4, 5, 6, 7));
  __m512i word1 = _mm512_srli_epi64(word0, 32);
  __m512i word2 = _mm512_set1_epi64(static_cast<int64_t>(sample));
  __m512i word3 = _mm512_srli_epi64(word2, 32);
  for (int round = 0; round < 10; ++round) {
    const __m512i product0 = _mm512_mul_epu32(word0, multiplier0);
    const __m512i product1 = _mm512_mul_epu32(word2, multiplier1);
    constexpr int kXor = 0x96;  // of all three
    word0 = _mm512_ternarylogic_epi64(_mm512_srli_epi64(product1, 32), word1, _mm512_set1_epi64(key[0]), kXor);
    word1 = product1;
    word2 = _mm512_ternarylogic_epi64(_mm512_srli_epi64(product0, 32), word3, _mm512_set1_epi64(key[1]), kXor);
    word3 = product0;
    key[0] += 0x9E3779B9;
    key[1] += 0xBB67AE85;
  }
  // Draws 0 and 1 of a block as the halves of an element, and 2 and 3; then both elements of a block beside each other.
  constexpr __mmask16 kUpper = 0xAAAA;
  const __m512i draws01 = _mm512_mask_shuffle_epi32(word0, kUpper, word1, _MM_PERM_CCAA);
  const __m512i draws23 = _mm512_mask_shuffle_epi32(word2, kUpper, word3, _MM_PERM_CCAA);
  const __m512i first_half = _mm512_setr_epi64(0, 8, 1, 9, 2, 10, 3, 11);
  const __m512i second_half = _mm512_setr_epi64(4, 12, 5, 13, 6, 14, 7, 15);
  const __m512i least = _mm512_set1_epi32(static_cast<int32_t>(threshold));
  const __mmask16 low = _mm512_cmpge_epu32_mask(_mm512_permutex2var_epi64(draws01, first_half, draws23), least);
  const __mmask16 high = _mm512_cmpge_epu32_mask(_mm512_permutex2var_epi64(draws01, second_half, draws23), least);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(keep), _mm_maskz_set1_epi8(low, 1));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(keep + 16), _mm_maskz_set1_epi8(high, 1));
}

bool has_registers() {
  static const bool has = __builtin_cpu_supports("avx512bw") != 0 && __builtin_cpu_supports("avx512vl") != 0;
  return has;
}

#else

void fill_blocks_in_registers(Key, uint64_t, uint64_t, uint32_t, uint8_t*) {}
bool has_registers() {
  return false;
}

#endif

}  // namespace

AttentionDropout::AttentionDropout(const DropKey& key, const SampleContext& context, int64_t first_head,
                                   int64_t num_tokens)
    : stream_(key.stream(Purpose::kAttentionDropout, context)),
      threshold_(context.training() ? drop_threshold(key.rate) : 0),
      kept_scale_(context.training() ? 1.0 / (1.0 - key.rate) : 1.0),
      first_head_(first_head),
      num_tokens_(num_tokens),
      samples_(context.samples) {}

void AttentionDropout::fill_row(int64_t row, int64_t head, int64_t query, Range keys, uint8_t* keep) const {
  const auto fill = has_registers() ? fill_blocks_in_registers : fill_blocks;
  const int64_t first = ((first_head_ + head) * num_tokens_ + query) * num_tokens_ + keys.begin;
  const auto sample = static_cast<uint64_t>(samples_.at(static_cast<size_t>(row)));
  std::array<uint8_t, kBatch> batch;
  int64_t skipped = first % kDraws;  // draws of the first block that belong to the keys before
  int64_t block = first / kDraws;
  for (int64_t done = 0; done < keys.size(); skipped = 0) {
    const int64_t count = std::min(kBatch - skipped, keys.size() - done);
    for (int64_t i = 0; i < skipped + count; i += kDraws * kBlocks, block += kBlocks) {
      fill(stream_.key(), static_cast<uint64_t>(block), sample, threshold_, batch.data() + i);
    }
    std::memcpy(keep + done, batch.data() + skipped, static_cast<size_t>(count));
    done += count;
  }
}

at::Tensor AttentionDropout::keep_block(int64_t num_heads, Range queries, c10::Device device) const {
  if (!device.is_cpu()) {
    const AttentionMaskKey key{stream_, threshold_, samples_, first_head_, num_heads, num_tokens_};
    return device_attention_mask(key, queries, {0, num_tokens_}, device);
  }
  const auto num_samples = static_cast<int64_t>(samples_.size());
  at::Tensor keep = at::empty({num_samples, num_heads, queries.size(), num_tokens_}, at::kByte);
  auto* row = keep.mutable_data_ptr<uint8_t>();
  for (int64_t sample = 0; sample < num_samples; ++sample) {
    for (int64_t head = 0; head < num_heads; ++head) {
      for (int64_t query = queries.begin; query < queries.end; ++query, row += num_tokens_) {
        fill_row(sample, head, query, {0, num_tokens_}, row);
      }
    }
  }
  return keep;
}

}  // namespace vit_hybrid::kernels
