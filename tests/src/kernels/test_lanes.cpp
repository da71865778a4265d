// Lanes (SIMD vectors): every half-length number and the edges of rounding as c10 converts them, in whole vectors and
// parts.
#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

#include "src/base/random.h"
#include "src/kernels/layer_norm.h"
#include "tests/support/half_numbers.h"

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

using namespace vit_hybrid;

namespace {

template <class T>
bool same(T a, T b) {
  const bool both_nan = std::isnan(static_cast<float>(a)) && std::isnan(static_cast<float>(b));
  return both_nan || a.x == b.x;
}

// 1 x + 0 y = x for all numbers but infinity: reading and writing alone.
template <class T>
std::vector<T> read_and_written(const std::vector<T>& numbers) {
  std::vector<T> result(numbers.size());
  kernels::residual_row(static_cast<const T*>(nullptr), numbers.data(), 1.0f, result.data(),
                        static_cast<int64_t>(numbers.size()));
  return result;
}

}  // namespace

TEST_CASE_TEMPLATE("lanes: every number of a half-length type is read and written as it is", T, c10::BFloat16,
                   c10::Half) {
  const auto numbers = testing::all_half_numbers<T>();
  const auto result = read_and_written(numbers);
  int64_t differ = 0;
  for (size_t i = 0; i < numbers.size(); ++i) {
    differ += same(result[i], numbers[i]) || static_cast<float>(numbers[i]) == 0.0f ? 0 : 1;
  }
  CHECK(differ == 0);
}

// x times a factor in fp32 is any fp32 number near to those of the type: rounded as c10 rounds it.
TEST_CASE_TEMPLATE("lanes: products are rounded as c10 rounds them", T, c10::BFloat16, c10::Half) {
  const auto numbers = testing::all_half_numbers<T>();
  const RandomStream stream(1, Purpose::kTest);
  std::vector<float> factors = {1.0f + 0x1p-12f, 1.0f - 0x1p-12f, 1.0f + 0x1p-9f, 1.5f, 0.5f, 0x1p-14f, 0x1p15f};
  for (uint64_t i = 0; i < 200; ++i) {
    factors.push_back(static_cast<float>(stream.normal(i)));
  }
  int64_t differ = 0;
  std::vector<T> result(numbers.size());
  for (const float factor : factors) {
    kernels::residual_row(static_cast<const T*>(nullptr), numbers.data(), factor, result.data(),
                          static_cast<int64_t>(numbers.size()));
    for (size_t i = 0; i < numbers.size(); ++i) {
      const T expected = static_cast<T>(static_cast<float>(numbers[i]) * factor);
      differ += same(result[i], expected) || static_cast<float>(expected) == 0.0f ? 0 : 1;
    }
  }
  CHECK(differ == 0);
}

TEST_CASE_TEMPLATE("lanes: a row of any length writes its own elements alone", T, float, double, c10::BFloat16,
                   c10::Half) {
  constexpr int64_t kMost = 70;
  std::vector<T> x;
  for (int64_t i = 0; i < kMost; ++i) {
    x.push_back(static_cast<T>(static_cast<float>(i + 1)));
  }
  using F = std::conditional_t<std::is_same_v<T, double>, double, float>;
  for (int64_t n = 0; n <= kMost; ++n) {
    std::vector<T> to(static_cast<size_t>(kMost), static_cast<T>(-1.0f));
    kernels::residual_row(x.data(), x.data(), F(1), to.data(), n);
    bool right = true;
    for (int64_t i = 0; i < kMost; ++i) {
      const float expected = i < n ? 2.0f * static_cast<float>(i + 1) : -1.0f;
      right = right && static_cast<float>(to[static_cast<size_t>(i)]) == expected;
    }
    CHECK(right);
  }
}
