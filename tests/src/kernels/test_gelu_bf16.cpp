// GELU of half-length rows: bf16 by the loops of AVX512-BF16 against erfc and tanh in fp64, the others against the fp32
// loops.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <limits>
#include <type_traits>
#include <vector>

#include "src/base/instruction_sets.h"
#include "src/kernels/gelu.h"
#include "tests/support/half_numbers.h"

using namespace vit_hybrid;
using c10::BFloat16;
using c10::Half;
using kernels::GeluKind;

namespace {

constexpr std::array kGeluKinds = {GeluKind::kErf, GeluKind::kTanh};

template <class T>
std::vector<uint16_t> bits_of(const std::vector<T>& numbers) {
  std::vector<uint16_t> bits;
  std::transform(numbers.begin(), numbers.end(), std::back_inserter(bits), [](T number) { return number.x; });
  return bits;
}

// Results before they are rounded: the sums of a backward row by gradients of 1.
struct Slopes {
  std::vector<BFloat16> rounded;
  std::vector<float> sums;
};

Slopes slopes(const std::vector<BFloat16>& z, GeluKind kind) {
  Slopes result{std::vector<BFloat16>(z.size()), std::vector<float>(z.size(), 0.0f)};
  const std::vector<BFloat16> ones(z.size(), BFloat16(1.0f));
  const auto count = static_cast<int64_t>(z.size());
  kernels::gelu_backward_rows(ones.data(), z.data(), result.rounded.data(), 1, result.sums.data(), count, kind);
  return result;
}

std::vector<BFloat16> values(const std::vector<BFloat16>& z, GeluKind kind) {
  std::vector<BFloat16> y(z.size());
  kernels::gelu_row(z.data(), y.data(), static_cast<int64_t>(z.size()), kind);
  return y;
}

// What tanh is applied to.
double argument(double z) {
  return std::sqrt(2.0 / M_PI) * (z + 0.044715 * z * z * z);
}

// Phi(-a).
double tail(double a, GeluKind kind) {
  return kind == GeluKind::kErf ? 0.5 * std::erfc(a * M_SQRT1_2) : 1.0 / (1.0 + std::exp(2.0 * argument(a)));
}

double exact_value(double z, GeluKind kind) {
  return z * tail(-z, kind);
}

double exact_slope(double z, GeluKind kind) {
  const double density = kind == GeluKind::kErf ? std::exp(-0.5 * z * z) / std::sqrt(2.0 * M_PI)
                                                : 2.0 * std::sqrt(2.0 / M_PI) * (1.0 + 3.0 * 0.044715 * z * z) *
                                                      tail(std::fabs(z), kind) * (1.0 - tail(std::fabs(z), kind));
  return tail(-z, kind) + z * density;
}

double value_error(double z, GeluKind kind) {
  const double relative = std::fabs(z) * tail(std::fabs(z), kind);
  return kind == GeluKind::kErf ? (std::fabs(z) < 3.0 ? 1e-4 * relative : 1.1e-6)
                                : (std::fabs(z) < 2.5 ? 2e-4 * relative : 2e-6);
}

double slope_error(double z, GeluKind kind) {
  const bool is_erf = kind == GeluKind::kErf;
  return std::max((is_erf ? 1.3e-4 : 2.1e-4) * std::fabs(exact_slope(-std::fabs(z), kind)), is_erf ? 2.7e-6 : 4.2e-6);
}

BFloat16 rounded(double value) {
  return BFloat16(static_cast<float>(value));
}

// Whether y is a number within `error` of `exact`, rounded. bf16's smallest normal number is allowed for: zeros may
// stand for those below.
bool is_rounded(BFloat16 y, double exact, double error) {
  const double margin = error + static_cast<double>(std::numeric_limits<BFloat16>::min());
  return static_cast<float>(y) >= static_cast<float>(rounded(exact - margin)) &&
         static_cast<float>(y) <= static_cast<float>(rounded(exact + margin));
}

bool is_bend(double z) {
  return std::fabs(z) >= 0x1p-7 && std::fabs(z) <= 3.0;
}

// Numbers over the bend, in no order.
struct Rows {
  explicit Rows(int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
      sums.push_back(static_cast<float>(i * 37 % 151) * 0.08f - 6.0f);
      bias.push_back(static_cast<float>(i % 5) * 0.1f);
      z.emplace_back(sums.back());
      dy.emplace_back(1.0f - static_cast<float>(i % 11) * 0.2f);
    }
  }

  std::vector<float> sums, bias;
  std::vector<BFloat16> z, dy;
};

}  // namespace

TEST_SUITE_BEGIN("GELU by AVX512-BF16" * doctest::skip(!has_avx512_bf16()));

TEST_CASE("gelu bf16: every number's value is within its bound, and nearly always the nearest") {
  const std::vector<BFloat16> z = testing::all_half_numbers<BFloat16>();
  for (const GeluKind kind : kGeluKinds) {
    const std::vector<BFloat16> y = values(z, kind);
    int outside = 0;
    int in_bend = 0;
    int not_nearest = 0;
    for (size_t i = 0; i < z.size(); ++i) {
      const double number = static_cast<float>(z[i]);
      if (std::isfinite(number)) {
        const double exact = exact_value(number, kind);
        outside += is_rounded(y[i], exact, value_error(number, kind)) ? 0 : 1;
        in_bend += is_bend(number) ? 1 : 0;
        not_nearest += is_bend(number) && y[i] != rounded(exact) ? 1 : 0;
      }
    }
    CAPTURE(static_cast<int>(kind));
    CHECK(outside == 0);
    CHECK(in_bend == 2178);
    CHECK(not_nearest <= (kind == GeluKind::kErf ? 40 : 80));  // 19 with erf are the number beside it
  }
}

TEST_CASE("gelu bf16: every number's slope is within its bound before it is rounded, and nearly always the nearest") {
  const std::vector<BFloat16> z = testing::all_half_numbers<BFloat16>();
  for (const GeluKind kind : kGeluKinds) {
    const Slopes slope = slopes(z, kind);
    int outside = 0;
    int not_rounded = 0;
    int not_nearest = 0;
    for (size_t i = 0; i < z.size(); ++i) {
      const double number = static_cast<float>(z[i]);
      if (std::isfinite(number)) {
        const double exact = exact_slope(number, kind);
        outside += std::fabs(static_cast<double>(slope.sums[i]) - exact) <= slope_error(number, kind) ? 0 : 1;
        not_rounded += slope.rounded[i] == BFloat16(slope.sums[i]) ? 0 : 1;
        not_nearest += is_bend(number) && slope.rounded[i] != rounded(exact) ? 1 : 0;
      }
    }
    CAPTURE(static_cast<int>(kind));
    CHECK(outside == 0);
    CHECK(not_rounded == 0);
    CHECK(not_nearest <= (kind == GeluKind::kErf ? 45 : 90));  // of 2178: 22 with erf are the number beside it
  }
}

TEST_CASE("gelu bf16: far from the bend it is 0 or its input, its slope 0 or 1, and what is not a number stays so") {
  const float infinity = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<BFloat16> large = {6.5f, 80.0f, 3e4f, 3e38f, infinity};
  const std::vector<BFloat16> nans = {nan, -nan};
  std::vector<BFloat16> z = large;
  std::transform(large.begin(), large.end(), std::back_inserter(z), [](BFloat16 x) { return -x; });
  for (const GeluKind kind : kGeluKinds) {
    const bool is_erf = kind == GeluKind::kErf;
    const std::vector<BFloat16> y = values(z, kind);
    const Slopes slope = slopes(z, kind);
    for (size_t i = 0; i < large.size(); ++i) {
      const auto below = static_cast<float>(y[large.size() + i]);
      CHECK(y[i] == z[i]);
      CHECK((below <= 0.0f && below > (is_erf ? -1e-9f : -5e-8f)));
      CHECK(slope.rounded[i] == 1.0f);
      CHECK(std::fabs(slope.sums[large.size() + i]) < (is_erf ? 1e-9f : 8e-7f));
    }
    for (const BFloat16 value : values(nans, kind)) {
      CHECK(std::isnan(static_cast<float>(value)));
    }
    for (const BFloat16 value : slopes(nans, kind).rounded) {
      CHECK(std::isnan(static_cast<float>(value)));
    }
  }
}

TEST_CASE("gelu bf16: at the end of a product it is that of the sum with the bias, rounded once") {
  constexpr int64_t kCount = 200003;
  std::vector<float> sums, bias;
  for (int64_t i = 0; i < kCount; ++i) {
    sums.push_back(static_cast<float>(i) * 9e-5f - 9.0f);
    bias.push_back(static_cast<float>(i % 17) * 0.03f - 0.25f);
  }
  std::vector<BFloat16> y(kCount);
  for (const GeluKind kind : kGeluKinds) {
    kernels::store_gelu_row(sums.data(), bias.data(), y.data(), kCount, kind);
    int outside = 0;
    for (size_t i = 0; i < y.size(); ++i) {
      const double z = sums[i] + bias[i];
      outside += is_rounded(y[i], exact_value(z, kind), value_error(z, kind)) ? 0 : 1;
    }
    CHECK(outside == 0);
  }
}

TEST_CASE("gelu bf16: rows of every length have the bits of their elements, in place too, and end where they end") {
  constexpr int64_t kLongest = 150;
  constexpr size_t kGuard = 40;
  const BFloat16 untouched = 7.0f;
  const Rows in(kLongest);
  for (int64_t count = 0; count <= kLongest; ++count) {
    const GeluKind kind = kGeluKinds.at(static_cast<size_t>(count % 2));
    const auto length = static_cast<size_t>(count);
    std::vector<BFloat16> y(length + kGuard, untouched);
    std::vector<BFloat16> stored = y;
    std::copy_n(in.z.begin(), length, y.begin());
    kernels::gelu_row(y.data(), y.data(), count, kind);
    kernels::store_gelu_row(in.sums.data(), in.bias.data(), stored.data(), count, kind);
    bool equal = true;
    for (size_t i = 0; i < length; ++i) {
      BFloat16 value, end;
      kernels::gelu_row(&in.z[i], &value, 1, kind);
      kernels::store_gelu_row(&in.sums[i], &in.bias[i], &end, 1, kind);
      equal = equal && y[i] == value && stored[i] == end;
    }
    for (size_t i = length; i < length + kGuard; ++i) {
      equal = equal && y[i] == untouched && stored[i] == untouched;
    }
    CAPTURE(count);
    CHECK(equal);
  }
}

TEST_CASE("gelu bf16: backward of any number of rows has the bits of its elements, summed one row after the other") {
  constexpr int64_t kMostRows = 7;
  constexpr int64_t kLongest = 100;
  constexpr size_t kGuard = 40;
  const BFloat16 untouched = 7.0f;
  const Rows in(kMostRows * kLongest);
  for (int64_t count = 1; count <= kLongest; ++count) {
    const GeluKind kind = kGeluKinds.at(static_cast<size_t>(count % 2));
    for (int64_t num_rows = 0; num_rows <= kMostRows; ++num_rows) {
      const auto elements = static_cast<size_t>(num_rows * count);
      const auto length = static_cast<size_t>(count);
      std::vector<BFloat16> dz(elements + kGuard, untouched);
      std::copy_n(in.dy.begin(), elements, dz.begin());
      std::vector<BFloat16> expected_dz = dz;
      std::vector<float> sums(length + kGuard, 2.0f);
      std::vector<float> expected_sums = sums;
      for (size_t i = 0; i < elements; ++i) {
        kernels::gelu_backward_rows(&in.dy[i], &in.z[i], &expected_dz[i], 1, &expected_sums[i % length], 1, kind);
      }
      kernels::gelu_backward_rows(dz.data(), in.z.data(), dz.data(), num_rows, sums.data(), count, kind);
      CAPTURE(count);
      CAPTURE(num_rows);
      CHECK(dz == expected_dz);
      CHECK(sums == expected_sums);
    }
  }
}

TEST_CASE("gelu bf16: at the end of a product every number has the bits that it has as a row's element") {
  const std::vector<BFloat16> z = testing::all_half_numbers<BFloat16>();
  const std::vector<float> sums(z.begin(), z.end());
  const std::vector<float> bias(z.size(), -0.0f);  // added, it leaves every number what it is, -0 too
  std::vector<BFloat16> stored(z.size());
  for (const GeluKind kind : kGeluKinds) {
    kernels::store_gelu_row(sums.data(), bias.data(), stored.data(), static_cast<int64_t>(z.size()), kind);
    CHECK(bits_of(stored) == bits_of(values(z, kind)));
  }
}

TEST_SUITE_END();

TEST_CASE_TEMPLATE("gelu half: without instructions for the type it has the bits of the fp32 loops, rounded", T, Half,
                   BFloat16) {
  if (std::is_same_v<T, BFloat16> && has_avx512_bf16()) {
    MESSAGE("skipped: this processor has instructions for bf16");
    return;
  }
  std::vector<T> z, dy;
  for (const T number : testing::all_half_numbers<T>()) {
    if (std::fabs(static_cast<float>(number)) < 50.0f) {
      z.push_back(number);
      dy.emplace_back(1.0f - static_cast<float>(z.size() % 11) * 0.2f);
    }
  }
  for (const int64_t count : {1, 17, 511, 512, 513, 1500}) {
    const GeluKind kind = kGeluKinds.at(static_cast<size_t>(count % 2));
    const int64_t num_rows = static_cast<int64_t>(z.size()) / count;
    const int64_t elements = num_rows * count;
    std::vector<float> row(z.begin(), z.end()), gradient(dy.begin(), dy.end());
    std::vector<float> expected_sums(static_cast<size_t>(count), 2.0f);
    std::vector<float> sums = expected_sums;
    kernels::gelu_backward_rows(gradient.data(), row.data(), gradient.data(), num_rows, expected_sums.data(), count,
                                kind);
    kernels::gelu_row(row.data(), row.data(), elements, kind);

    std::vector<T> y = z, dz = dy;
    kernels::gelu_row(y.data(), y.data(), elements, kind);
    kernels::gelu_backward_rows(dz.data(), z.data(), dz.data(), num_rows, sums.data(), count, kind);
    CAPTURE(count);
    CHECK(bits_of(y) == bits_of(std::vector<T>(row.begin(), row.end())));
    CHECK(bits_of(dz) == bits_of(std::vector<T>(gradient.begin(), gradient.end())));
    CHECK(sums == expected_sums);
  }
}
