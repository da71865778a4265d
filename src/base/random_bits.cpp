// RandomStream::fill_bits(): many Philox blocks side by side, in vectors.
#include <algorithm>
#include <array>

#include "src/base/instruction_sets.h"
#include "src/base/random.h"

namespace vit_hybrid {

namespace {

constexpr size_t kBatch = 64;  // blocks
using Words = std::array<uint32_t, 4 * kBatch>;

// words[4 k ..] = the block of counter (first + k, j), for k below count.
VH_VERSIONS void fill_blocks(std::array<uint32_t, 2> key, uint64_t first, uint64_t j, size_t count, Words& words) {
#pragma omp simd
  for (size_t k = 0; k < count; ++k) {
    const uint64_t i = first + k;
    const PhiloxBlock block = philox4x32(key, {low_word(i), high_word(i), low_word(j), high_word(j)});
    words[4 * k] = block[0];
    words[4 * k + 1] = block[1];
    words[4 * k + 2] = block[2];
    words[4 * k + 3] = block[3];
  }
}

}  // namespace

void RandomStream::fill_bits(uint64_t first, uint64_t j, std::span<uint32_t> values) const {
  Words words;
  size_t skipped = first % 4;  // draws of the first block that were not asked for
  uint64_t block = first / 4;
  for (size_t done = 0; done < values.size(); block += kBatch, skipped = 0) {
    const size_t count = std::min(words.size() - skipped, values.size() - done);
    fill_blocks(key_, block, j, (skipped + count + 3) / 4, words);
    std::copy_n(words.data() + skipped, count, values.data() + done);
    done += count;
  }
}

}  // namespace vit_hybrid
