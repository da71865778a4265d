// Rows of half-length types: bit for bit the rows in fp32 of the same numbers, one at a time, rounded as c10 rounds: at
// every length, and for what is not finite or not normal.
#include <doctest/doctest.h>

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <vector>

#include "src/base/random.h"
#include "src/kernels/layer_norm.h"

using namespace vit_hybrid;

namespace {

constexpr int64_t kRows = 7;    // groups of rows and a part of one
constexpr int64_t kGuard = 40;  // elements behind the last row, which nothing may touch
constexpr float kUntouched = 7.0F;
constexpr float kRowEps = 1e-6F;

enum class Numbers { kNormal, kSubnormal, kSomeSubnormal, kNotFinite };

std::vector<int64_t> lengths() {
  std::vector<int64_t> result = {127, 128, 129, 384, 389, 768};
  for (int64_t n = 1; n <= 100; ++n) {
    result.push_back(n);
  }
  return result;
}

size_t at(int64_t i) {
  return static_cast<size_t>(i);
}

// fp32 numbers that are numbers of T. Some: every seventh of a row of n.
template <class T>
std::vector<float> random_row_numbers(int64_t count, int64_t n, uint64_t seed, Numbers numbers) {
  const RandomStream stream(seed, Purpose::kTest);
  const auto smallest = static_cast<float>(std::numeric_limits<T>::min());
  std::vector<float> result;
  for (int64_t i = 0; i < count; ++i) {
    const bool small = numbers == Numbers::kSubnormal || (numbers == Numbers::kSomeSubnormal && i % n % 7 == 0);
    const auto number = static_cast<float>(stream.normal(static_cast<uint64_t>(i)));
    result.push_back(static_cast<float>(T(small ? smallest * number : number)));
  }
  return result;
}

struct RowInputs {
  int64_t n;
  std::vector<float> x, branch, dy, residual, weight, bias;
};

template <class T>
RowInputs inputs_of(int64_t n, Numbers numbers) {
  const auto rows = [=](uint64_t seed) { return random_row_numbers<T>(kRows * n, n, seed, numbers); };
  RowInputs in{n,
               rows(1),
               rows(2),
               rows(3),
               rows(4),
               random_row_numbers<T>(n, n, 5, numbers),
               random_row_numbers<T>(n, n, 6, numbers)};
  if (numbers == Numbers::kNotFinite) {
    in.x.front() = std::numeric_limits<float>::quiet_NaN();
    in.branch[at(3 * n - 1)] = -std::numeric_limits<float>::infinity();
    in.dy[at(4 * n + n / 2)] = std::numeric_limits<float>::infinity();
    in.residual.back() = std::numeric_limits<float>::infinity();
  }
  return in;
}

struct Results {
  std::vector<float> sum, y, mean, rstd, dx, dweight, dbias;
};

bool same_numbers(const std::vector<float>& a, const std::vector<float>& b, bool any_nan) {
  bool equal = a.size() == b.size();
  for (size_t i = 0; equal && i < a.size(); ++i) {
    equal = std::bit_cast<uint32_t>(a[i]) == std::bit_cast<uint32_t>(b[i]) ||
            (any_nan && std::isnan(a[i]) && std::isnan(b[i]));
  }
  return equal;
}

// Which NaN comes of two is the compiler's choice.
bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return same_numbers(a, b, true);
}

// In bf16 every NaN is c10's.
template <class T>
bool same_rows(const std::vector<float>& a, const std::vector<float>& b) {
  return same_numbers(a, b, !std::is_same_v<T, c10::BFloat16>);
}

// Rows of T, with the guard behind them.
template <class T>
std::vector<T> guarded(const std::vector<float>& rows) {
  std::vector<T> result(rows.begin(), rows.end());
  result.insert(result.end(), at(kGuard), T(kUntouched));
  return result;
}

template <class T>
std::vector<float> widened(const std::vector<T>& rows) {
  return {rows.begin(), rows.end()};
}

template <class T>
std::vector<float> rounded_by_c10(const std::vector<float>& values) {
  return widened(std::vector<T>(values.begin(), values.end()));
}

const std::vector<float> kScales = {1.0F, 0.0F, 1.0F / 0.7F, 1.0F, 1.0F / 0.7F, 1.0F, 0.0F};

// What rows of T give: x + scale branch is normed, and the residual's gradient added in backward, or x alone.
template <class T>
Results results_of(const RowInputs& in, bool with_residual) {
  const auto x = guarded<T>(in.x);
  const auto dy = guarded<T>(in.dy);
  const auto residual = guarded<T>(in.residual);
  auto sum = guarded<T>(with_residual ? in.branch : in.x);
  auto y = guarded<T>(in.x);
  auto dx = guarded<T>(in.x);
  std::vector<float> workspace(at(kernels::kWorkspaceRows * in.n));
  const kernels::NormRows<float> rows{in.n, kRowEps, in.weight.data(), in.bias.data(), workspace.data()};
  Results out{{}, {}, std::vector<float>(kRows), std::vector<float>(kRows), {}, in.bias, in.weight};
  if (with_residual) {
    kernels::residual_norm_rows(x.data(), sum.data(), kScales.data(), y.data(), kRows, out.mean.data(), out.rstd.data(),
                                rows);
  } else {
    kernels::norm_rows(x.data(), y.data(), kRows, out.mean.data(), out.rstd.data(), rows);
  }
  const kernels::NormRowsBackward<T, float> arrays{
      dy.data(), sum.data(), out.mean.data(), out.rstd.data(), with_residual ? residual.data() : nullptr, dx.data()};
  kernels::norm_backward_rows(arrays, kRows, out.dweight.data(), out.dbias.data(), rows);
  out.sum = widened(sum);
  out.y = widened(y);
  out.dx = widened(dx);
  return out;
}

// The same of rows in fp32, one by one, each result rounded by c10.
template <class T>
Results rows_reference(const RowInputs& in, bool with_residual) {
  const kernels::NormRows<float> rows{in.n, kRowEps, in.weight.data(), in.bias.data(), nullptr};
  std::vector<float> sum = in.x;
  std::vector<float> y = in.x;
  std::vector<float> dx = in.x;
  Results out{{}, {}, std::vector<float>(kRows), std::vector<float>(kRows), {}, in.bias, in.weight};
  for (int64_t row = 0; row < kRows; ++row) {
    const int64_t first = row * in.n;
    if (with_residual) {
      kernels::residual_row(in.x.data() + first, in.branch.data() + first, kScales[at(row)], sum.data() + first, in.n);
      sum = rounded_by_c10<T>(sum);
    }
    float* const mean = out.mean.data() + row;
    float* const rstd = out.rstd.data() + row;
    kernels::norm_rows(sum.data() + first, y.data() + first, 1, mean, rstd, rows);
    const kernels::NormRowsBackward<float, float> arrays{
        in.dy.data() + first, sum.data() + first, mean, rstd, with_residual ? in.residual.data() + first : nullptr,
        dx.data() + first};
    kernels::norm_backward_rows(arrays, 1, out.dweight.data(), out.dbias.data(), rows);
  }
  out.sum = widened(guarded<T>(sum));
  out.y = widened(guarded<T>(y));
  out.dx = widened(guarded<T>(dx));
  return out;
}

}  // namespace

TEST_CASE_TEMPLATE("norm rows: half-length rows are those of fp32, rounded as c10 rounds them", T, c10::BFloat16,
                   c10::Half) {
  for (const auto numbers : {Numbers::kNormal, Numbers::kSubnormal, Numbers::kSomeSubnormal, Numbers::kNotFinite}) {
    for (const bool with_residual : {false, true}) {
      for (const int64_t n : lengths()) {
        CAPTURE(static_cast<int>(numbers));
        CAPTURE(with_residual);
        CAPTURE(n);
        const RowInputs in = inputs_of<T>(n, numbers);
        const Results got = results_of<T>(in, with_residual);
        const Results expected = rows_reference<T>(in, with_residual);
        CHECK(same_rows<T>(got.sum, expected.sum));
        CHECK(same_rows<T>(got.y, expected.y));
        CHECK(same_bits(got.mean, expected.mean));
        CHECK(same_bits(got.rstd, expected.rstd));
        CHECK(same_rows<T>(got.dx, expected.dx));
        CHECK(same_bits(got.dweight, expected.dweight));
        CHECK(same_bits(got.dbias, expected.dbias));
      }
    }
  }
}

TEST_CASE("norm rows: the norms of rows do not depend on how many are computed together") {
  for (const int64_t n : lengths()) {
    CAPTURE(n);
    const RowInputs in = inputs_of<float>(n, Numbers::kNormal);
    for (const bool with_residual : {false, true}) {
      const Results together = results_of<float>(in, with_residual);
      const Results alone = rows_reference<float>(in, with_residual);
      CHECK(same_bits(together.sum, alone.sum));
      CHECK(same_bits(together.y, alone.y));
      CHECK(same_bits(together.dx, alone.dx));
      CHECK(same_bits(together.dweight, alone.dweight));
    }
  }
}
