// The mixing of one value, the loop over many, and sums over ranks.
#include "src/checkpoint/checksums.h"

#include <bit>
#include <vector>

#include "src/base/instruction_sets.h"

namespace vit_hybrid::train {

namespace {

constexpr uint64_t kGolden = 0x9E3779B97F4A7C15;  // odd: distinct indices have distinct keys

// For one key a bijection of the bits, so one changed value always changes the sum; for two the difference of two
// mixed words depends on both bits and keys, so exchanged values do not cancel.
inline uint64_t mix(uint64_t key, uint64_t bits) {
  uint64_t word = bits ^ key;
  word = (word ^ (word >> 32)) * 0xD6E8FEB86659FD93;
  word = (word ^ (word >> 32)) * 0xD6E8FEB86659FD93;
  return word ^ (word >> 32);
}

inline uint64_t bits_of(float value) {
  return std::bit_cast<uint32_t>(value);
}
inline uint64_t bits_of(double value) {
  return std::bit_cast<uint64_t>(value);
}

// Becomes a part of each of the versions below.
template <class T>
[[gnu::always_inline]] inline uint64_t sum_of(const T* values, int64_t count, int64_t first_index) {
  uint64_t key = (static_cast<uint64_t>(first_index) + 1) * kGolden;
  uint64_t sum = 0;
#pragma omp simd reduction(+ : sum) linear(key : kGolden)
  for (int64_t i = 0; i < count; ++i) {
    sum += mix(key, bits_of(values[i]));
    key += kGolden;
  }
  return sum;
}

}  // namespace

VH_VERSIONS uint64_t checksum_of(const float* values, int64_t count, int64_t first_index) {
  return sum_of(values, count, first_index);
}

VH_VERSIONS uint64_t checksum_of(const double* values, int64_t count, int64_t first_index) {
  return sum_of(values, count, first_index);
}

void add_up(Checksums& checksums, const comm::MpiGroup& ranks) {
  std::vector<uint64_t> sums;
  for (const auto& [name, checksum] : checksums) {
    sums.push_back(checksum.value());
  }
  ranks.sum(sums);
  auto sum = sums.begin();
  for (auto& [name, checksum] : checksums) {
    checksum = {};
    checksum.add(*sum++);
  }
}

}  // namespace vit_hybrid::train
