// Figures of tensors and of their differences, against numbers worked out by hand.
#include <ATen/ops/tensor.h>
#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "src/checkpoint/verify.h"

namespace vit_hybrid::train {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

at::Tensor values(const std::vector<double>& of, at::ScalarType type = at::kDouble) {
  return at::tensor(of, at::TensorOptions(at::kDouble)).to(type);
}

}  // namespace

TEST_CASE("tensor summary: range, mean and deviation of the finite values") {
  for (const auto type : {at::kFloat, at::kDouble}) {
    const TensorSummary summary = summarize(values({2.0, kNan, 4.0, -kInfinity, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0}, type));
    CHECK(summary.count == 10);
    CHECK(summary.num_not_finite == 2);
    CHECK(summary.least == 2.0);
    CHECK(summary.most == 9.0);
    CHECK(summary.mean == 5.0);
    CHECK(summary.deviation == 2.0);
  }
  const TensorSummary none = summarize(values({kNan}));
  CHECK(none.num_not_finite == 1);
  CHECK(none.most == 0.0);
  CHECK(summarize(values({})).count == 0);
}

TEST_CASE("tensor difference: the first value, the largest differences, bit by bit") {
  const at::Tensor a = values({1.0, 2.0, kNan, 0.0, -4.0});
  CHECK(difference_of(a, a).num_different == 0);
  CHECK(difference_of(a, a).first_index == -1);
  const TensorDifference difference = difference_of(a, values({1.0, 2.5, kNan, -0.0, -3.0}));
  CHECK(difference.num_different == 3);
  CHECK(difference.first_index == 1);
  CHECK(difference.first_a == 2.0);
  CHECK(difference.first_b == 2.5);
  CHECK(difference.largest_absolute == 1.0);
  CHECK(difference.largest_relative == 0.25);
  CHECK(difference_of(values({1.0}), values({kNan})).largest_absolute == kInfinity);
  CHECK(difference_of(values({0.5}, at::kFloat), values({0.5})).num_different == 0);
}

}  // namespace vit_hybrid::train
