// Buckets against TensorFlow's rule by a search, and what is counted of tensors.
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "src/report/metrics_log.h"

using namespace vit_hybrid;
using namespace vit_hybrid::train;

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// The first limit above the value; of what is beyond all of them the last.
size_t searched(double value) {
  const auto& limits = bucket_limits();
  const auto found = std::upper_bound(limits.begin(), limits.end() - 1, value);
  return static_cast<size_t>(found - limits.begin());
}

}  // namespace

TEST_CASE("histogram: the buckets are TensorFlow's") {
  const auto& limits = bucket_limits();
  CHECK(std::is_sorted(limits.begin(), limits.end()));
  CHECK(limits.size() == 2 * 774 + 2);
  CHECK(limits[774] == 0.0);
  CHECK(limits[775] == 1e-12);
  CHECK(limits[776] == 1e-12 * 1.1);
  CHECK(limits[773] == -1e-12);
  CHECK(limits.back() == std::numeric_limits<double>::max());
  CHECK(limits[limits.size() - 2] < 1e20);
  CHECK(limits[limits.size() - 2] * 1.1 >= 1e20);
}

TEST_CASE("histogram: every value is in the bucket that a search finds") {
  const auto check = [](double value) {
    for (const double signed_value : {value, -value}) {
      CAPTURE(signed_value);
      REQUIRE(bucket_of(signed_value) == searched(signed_value));
    }
  };
  for (const double limit : bucket_limits()) {
    check(limit);
    check(std::nextafter(limit, kInfinity));
    check(std::nextafter(limit, -kInfinity));
  }
  for (const double value : {0.0, 5e-324, 1e-300, 1e-13, 1.0, 1e19, 1e21, 1e300, kInfinity}) {
    check(value);
  }
  for (int exponent = -45; exponent < 72; ++exponent) {
    for (int part = 0; part < 64; ++part) {
      check(std::ldexp(1.0 + part / 64.0, exponent));
    }
  }
  std::mt19937_64 random(7);
  std::uniform_real_distribution<double> exponent(-14.0, 22.0);
  for (int i = 0; i < 100000; ++i) {
    check(std::pow(10.0, exponent(random)));
  }
}

TEST_CASE("histogram: what is not finite is counted apart") {
  Histogram histogram;
  count(at::tensor({1.0F, -2.0F, NAN, INFINITY, -INFINITY, 0.0F}), 0.5, histogram);
  CHECK(histogram.not_finite == 3);
  CHECK(histogram.size() == 3);
  CHECK(histogram.least == -1.0);
  CHECK(histogram.most == 0.5);
  CHECK(histogram.sum == -0.5);
  CHECK(histogram.sum_of_squares == 1.25);
  for (const double value : {-1.0, 0.0, 0.5}) {
    CHECK(histogram.counts[searched(value)] == 1);
  }
  count(at::tensor({0.5}), 1.0, histogram);  // another tensor adds to it
  CHECK(histogram.counts[searched(0.5)] == 2);
  CHECK(histogram.sum == 0.0);
  Histogram nothing;
  count(at::empty({0}), 1.0, nothing);
  CHECK(nothing.size() == 0);
  CHECK(nothing.least > nothing.most);
}

TEST_CASE("histogram: of a long tensor in each type, by blocks of all threads") {
  std::mt19937 random(3);
  std::normal_distribution<double> normal(0.0, 0.02);
  const at::Tensor values = at::empty({100001}, at::kDouble);
  std::generate_n(values.mutable_data_ptr<double>(), values.numel(), [&] { return normal(random); });
  for (const auto type : {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf}) {
    const at::Tensor typed = values.to(type);
    Histogram found;
    count(typed, 1.0, found);
    Histogram wanted;
    const at::Tensor wide = typed.to(at::kDouble);
    for (int64_t i = 0; i < wide.numel(); ++i) {
      const double value = wide.const_data_ptr<double>()[i];
      ++wanted.counts[searched(value)];
      wanted.sum += value;
      wanted.sum_of_squares += value * value;
      wanted.least = std::min(wanted.least, value);
      wanted.most = std::max(wanted.most, value);
    }
    CHECK(found.counts == wanted.counts);
    CHECK(found.least == wanted.least);
    CHECK(found.most == wanted.most);
    CHECK(found.sum == doctest::Approx(wanted.sum).epsilon(1e-9));
    CHECK(found.sum_of_squares == doctest::Approx(wanted.sum_of_squares).epsilon(1e-12));
    CHECK(found.not_finite == 0);
  }
}
