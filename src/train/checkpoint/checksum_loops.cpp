// The mixing of one value, and the two loops.
#include "src/train/checkpoint/checksum_loops.h"

#include <bit>

#include "src/base/instruction_sets.h"

namespace vit_hybrid::train {

namespace {

constexpr uint64_t kGolden = 0x9E3779B97F4A7C15;  // odd: distinct indices have distinct keys

inline uint64_t key_of(int64_t index) {
  return (static_cast<uint64_t>(index) + 1) * kGolden;
}

// For one key a bijection of the bits, so one changed value always changes the sum; for two the difference of two
// mixed words depends on both bits and keys, so exchanged values do not cancel.
inline uint64_t mix(uint64_t key, uint64_t bits) {
  uint64_t word = bits ^ key;
  word = (word ^ (word >> 32)) * 0xD6E8FEB86659FD93;
  word = (word ^ (word >> 32)) * 0xD6E8FEB86659FD93;
  return word ^ (word >> 32);
}

}  // namespace

VH_VERSIONS uint64_t checksum_of(const float* values, int64_t count, int64_t first_index) {
  uint64_t key = key_of(first_index);
  uint64_t sum = 0;
#pragma omp simd reduction(+ : sum) linear(key : kGolden)
  for (int64_t i = 0; i < count; ++i) {
    sum += mix(key, std::bit_cast<uint32_t>(values[i]));
    key += kGolden;
  }
  return sum;
}

VH_VERSIONS uint64_t checksum_of(const double* values, int64_t count, int64_t first_index) {
  uint64_t key = key_of(first_index);
  uint64_t sum = 0;
#pragma omp simd reduction(+ : sum) linear(key : kGolden)
  for (int64_t i = 0; i < count; ++i) {
    sum += mix(key, std::bit_cast<uint64_t>(values[i]));
    key += kGolden;
  }
  return sum;
}

}  // namespace vit_hybrid::train
