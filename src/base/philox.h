// Philox4x32-10, the block function behind all random numbers.
#pragma once

#include <array>
#include <cstdint>

namespace vit_hybrid {

using PhiloxBlock = std::array<uint32_t, 4>;

inline constexpr uint32_t low_word(uint64_t value) {
  return static_cast<uint32_t>(value);
}
inline constexpr uint32_t high_word(uint64_t value) {
  return static_cast<uint32_t>(value >> 32);
}

/// Philox4x32 with 10 rounds: J. K. Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC11, section 4.
///
/// Inline, and in 64-bit words of which the lower halves count: so a loop over counters becomes vectors without
/// conversions between widths.
inline PhiloxBlock philox4x32(std::array<uint32_t, 2> key, PhiloxBlock counter) {
  constexpr uint64_t kMultiplier0 = 0xD2511F53;
  constexpr uint64_t kMultiplier1 = 0xCD9E8D57;
  constexpr uint32_t kWeyl0 = 0x9E3779B9;
  constexpr uint32_t kWeyl1 = 0xBB67AE85;
  constexpr uint64_t kLow = 0xFFFFFFFF;
  constexpr int kRounds = 10;
  uint64_t word0 = counter[0];
  uint64_t word1 = counter[1];
  uint64_t word2 = counter[2];
  uint64_t word3 = counter[3];
  for (int round = 0; round < kRounds; ++round) {
    const uint64_t product0 = kMultiplier0 * (word0 & kLow);
    const uint64_t product1 = kMultiplier1 * (word2 & kLow);
    word0 = (product1 >> 32) ^ word1 ^ key[0];
    word1 = product1;
    word2 = (product0 >> 32) ^ word3 ^ key[1];
    word3 = product0;
    key[0] += kWeyl0;
    key[1] += kWeyl1;
  }
  return {low_word(word0), low_word(word1), low_word(word2), low_word(word3)};
}

}  // namespace vit_hybrid
