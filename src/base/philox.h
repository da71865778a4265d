// Philox4x32-10, the block function behind all random numbers.
#pragma once

#include <array>
#include <cstdint>

#include "src/base/instruction_sets.h"

namespace vit_hybrid {

using PhiloxBlock = std::array<uint32_t, 4>;

VH_HOST_DEVICE inline constexpr uint32_t low_word(uint64_t value) {
  return static_cast<uint32_t>(value);
}
VH_HOST_DEVICE inline constexpr uint32_t high_word(uint64_t value) {
  return static_cast<uint32_t>(value >> 32);
}

/// Philox4x32 with 10 rounds: J. K. Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC11, section 4.
///
/// Inline, and by default in 64-bit words of which the lower halves count: so a loop over counters on the host becomes
/// vectors without conversions between widths. Device code takes uint32_t, whose products are one instruction there.
template <class Word = uint64_t>
VH_HOST_DEVICE inline PhiloxBlock philox4x32(std::array<uint32_t, 2> key, PhiloxBlock counter) {
  constexpr uint64_t kMultiplier0 = 0xD2511F53;
  constexpr uint64_t kMultiplier1 = 0xCD9E8D57;
  constexpr uint32_t kWeyl0 = 0x9E3779B9;
  constexpr uint32_t kWeyl1 = 0xBB67AE85;
  constexpr uint64_t kLow = 0xFFFFFFFF;
  constexpr int kRounds = 10;
  Word word0 = counter[0];
  Word word1 = counter[1];
  Word word2 = counter[2];
  Word word3 = counter[3];
  for (int round = 0; round < kRounds; ++round) {
    const uint64_t product0 = kMultiplier0 * (word0 & kLow);
    const uint64_t product1 = kMultiplier1 * (word2 & kLow);
    word0 = static_cast<Word>(product1 >> 32) ^ word1 ^ key[0];
    word1 = static_cast<Word>(product1);
    word2 = static_cast<Word>(product0 >> 32) ^ word3 ^ key[1];
    word3 = static_cast<Word>(product0);
    key[0] += kWeyl0;
    key[1] += kWeyl1;
  }
  return {low_word(word0), low_word(word1), low_word(word2), low_word(word3)};
}

}  // namespace vit_hybrid
