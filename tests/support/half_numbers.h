// All numbers of a half-length type of c10.
#pragma once

#include <cstdint>
#include <vector>

namespace vit_hybrid::testing {

/// By their bits, with all that are not finite.
template <class T>
std::vector<T> all_half_numbers() {
  std::vector<T> numbers;
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    numbers.emplace_back(static_cast<uint16_t>(bits), T::from_bits());
  }
  return numbers;
}

}  // namespace vit_hybrid::testing
