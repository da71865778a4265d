// Draws the masks of attention dropout, many Philox blocks side by side in vectors.
#include "src/kernels/attention/attention_dropout.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "src/base/philox.h"
#include "src/kernels/avx512.h"

namespace vit_hybrid::kernels {

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
