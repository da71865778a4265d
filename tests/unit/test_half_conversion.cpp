// Conversion of arrays: bit for bit what c10 makes of each number, for all half numbers and hard cases of fp32.
#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "src/base/half_conversion.h"
#include "src/base/random.h"

using namespace vit_hybrid;

namespace {

template <class Half>
std::vector<Half> all_halves() {
  std::vector<Half> halves;
  for (uint32_t bits = 0; bits <= 0xFFFF; ++bits) {
    halves.emplace_back(static_cast<uint16_t>(bits), Half::from_bits());
  }
  return halves;
}

// Halves, what lies just above and below them and in the middle to the next, and numbers of any exponent.
template <class Half>
std::vector<float> hard_numbers() {
  std::vector<float> numbers;
  for (const Half half : all_halves<Half>()) {
    const auto bits = std::bit_cast<uint32_t>(static_cast<float>(half));
    const uint32_t middle = std::is_same_v<Half, c10::Half> ? 0x1000 : 0x8000;
    for (const uint32_t offset : {0U, 1U, middle - 1, middle, middle + 1}) {
      numbers.push_back(std::bit_cast<float>(bits + offset));
    }
  }
  const RandomStream stream(1, Purpose::kDropout);
  for (uint64_t i = 0; i < 100000; ++i) {
    numbers.push_back(std::bit_cast<float>(stream.bits(i)));
  }
  return numbers;
}

template <class Half>
void check_both_ways() {
  const auto halves = all_halves<Half>();
  std::vector<float> widened(halves.size());
  convert(halves.data(), widened.data(), static_cast<int64_t>(halves.size()));
  for (size_t i = 0; i < halves.size(); ++i) {
    const auto expected = static_cast<float>(halves[i]);
    const bool same = std::bit_cast<uint32_t>(widened[i]) == std::bit_cast<uint32_t>(expected);
    REQUIRE((same || (std::isnan(widened[i]) && std::isnan(expected))));
  }
  const auto numbers = hard_numbers<Half>();
  std::vector<Half> narrowed(numbers.size());
  convert(numbers.data(), narrowed.data(), static_cast<int64_t>(numbers.size()));
  for (size_t i = 0; i < numbers.size(); ++i) {
    const Half expected(numbers[i]);
    CAPTURE(numbers[i]);
    REQUIRE((narrowed[i].x == expected.x || (std::isnan(numbers[i]) && std::isnan(static_cast<float>(narrowed[i])))));
  }
}

}  // namespace

TEST_CASE("half conversion: bf16 is rounded as c10 rounds it") {
  check_both_ways<c10::BFloat16>();
}

TEST_CASE("half conversion: fp16 is rounded as c10 rounds it") {
  check_both_ways<c10::Half>();
}

TEST_CASE("half conversion: any count, none of the elements after it is touched") {
  const std::vector<float> from(40, 1.5F);
  for (int64_t count = 0; count <= 33; ++count) {
    std::vector<c10::Half> to(40, c10::Half(7.0F));
    convert(from.data(), to.data(), count);
    for (int64_t i = 0; i < 40; ++i) {
      CHECK(static_cast<float>(to[static_cast<size_t>(i)]) == (i < count ? 1.5F : 7.0F));
    }
  }
}
