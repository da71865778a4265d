// Conversion of arrays: bit for bit what c10 makes of each number, for all half numbers and hard cases of fp32.
#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <type_traits>
#include <vector>

#include "src/base/random.h"
#include "src/kernels/half_conversion.h"

using namespace vit_hybrid;
using namespace vit_hybrid::kernels;

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

TEST_CASE_TEMPLATE("half conversion: any count, none of the elements after it is touched", T, c10::BFloat16,
                   c10::Half) {
  constexpr int64_t kMost = 200;
  const std::vector<float> from(kMost, 1.5F);
  for (int64_t count = 0; count <= kMost; ++count) {
    std::vector<T> to(kMost, T(7.0F));
    convert(from.data(), to.data(), count);
    int64_t wrong = 0;
    for (int64_t i = 0; i < kMost; ++i) {
      wrong += static_cast<float>(to[static_cast<size_t>(i)]) == (i < count ? 1.5F : 7.0F) ? 0 : 1;
    }
    CAPTURE(count);
    CHECK(wrong == 0);
  }
}

TEST_CASE_TEMPLATE("half conversion: one hard number at any place, and its neighbours", T, c10::BFloat16, c10::Half) {
  constexpr int64_t kCount = 300;
  for (const float hard :
       {std::numeric_limits<float>::quiet_NaN(), std::bit_cast<float>(0x7FA50000U), std::bit_cast<float>(0xFFFFFFFFU),
        std::numeric_limits<float>::infinity(), 1e-40F, -0.0F, 3.4e38F}) {
    for (int64_t place = 0; place < kCount; ++place) {
      std::vector<float> from(kCount, 1.0F + 0x1p-12F);
      from[static_cast<size_t>(place)] = hard;
      std::vector<T> to(kCount);
      convert(from.data(), to.data(), kCount);
      int64_t wrong = 0;
      for (int64_t i = 0; i < kCount; ++i) {
        const T expected(from[static_cast<size_t>(i)]);
        const T got = to[static_cast<size_t>(i)];
        const bool both_nan = std::isnan(static_cast<float>(got)) && std::isnan(static_cast<float>(expected));
        wrong += got.x == expected.x || (both_nan && std::is_same_v<T, c10::Half>) ? 0 : 1;
      }
      CAPTURE(hard);
      CAPTURE(place);
      CHECK(wrong == 0);
    }
  }
}
