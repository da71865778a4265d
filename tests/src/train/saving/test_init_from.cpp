// Positions on another grid against the formula of cubic convolution.
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "src/train/saving/init_from.h"
#include "tests/support/compare.h"
#include "tests/support/vit_harness.h"

using namespace vit_hybrid;

namespace {

// Keys (1981), equation 4 with a = -3/4.
double kernel(double x) {
  constexpr double a = -0.75;
  x = std::abs(x);
  if (x <= 1.0) return (a + 2.0) * x * x * x - (a + 3.0) * x * x + 1.0;
  if (x < 2.0) return a * x * x * x - 5.0 * a * x * x + 8.0 * a * x - 4.0 * a;
  return 0.0;
}

// Value of feature `d` of the new grid's patch (i, j), summed over the 16 nearest patches.
double resized_value(const at::Tensor& positions, train::TokenGrid from, train::TokenGrid to, int64_t i, int64_t j,
                     int64_t d) {
  const auto source = [](int64_t index, int64_t n, int64_t of) {
    return (static_cast<double>(index) + 0.5) * static_cast<double>(n) / static_cast<double>(of) - 0.5;
  };
  const double y = source(i, from.height, to.height);
  const double x = source(j, from.width, to.width);
  double sum = 0.0;
  for (auto row = static_cast<int64_t>(std::floor(y)) - 1; row <= std::floor(y) + 2; ++row) {
    for (auto column = static_cast<int64_t>(std::floor(x)) - 1; column <= std::floor(x) + 2; ++column) {
      const int64_t r = std::clamp<int64_t>(row, 0, from.height - 1);
      const int64_t c = std::clamp<int64_t>(column, 0, from.width - 1);
      sum += kernel(y - static_cast<double>(row)) * kernel(x - static_cast<double>(column)) *
             positions[0][r * from.width + c][d].item<double>();
    }
  }
  return sum;
}

}  // namespace

TEST_CASE("init-from: resized positions are those of cubic convolution") {
  const train::TokenGrid from{4, 6};
  const at::Tensor positions = testing::normal_tensor({1, 24, 3}, 5);
  for (const train::TokenGrid to : {train::TokenGrid{8, 12}, train::TokenGrid{3, 7}, train::TokenGrid{1, 2}}) {
    const at::Tensor resized = train::resize_positions(positions, from, to);
    REQUIRE(resized.sizes().vec() == std::vector<int64_t>{1, to.height * to.width, 3});
    for (int64_t i = 0; i < to.height; ++i) {
      for (int64_t j = 0; j < to.width; ++j) {
        for (int64_t d = 0; d < 3; ++d) {
          CHECK(resized[0][i * to.width + j][d].item<double>() ==
                doctest::Approx(resized_value(positions, from, to, i, j, d)).epsilon(1e-12));
        }
      }
    }
  }
}

TEST_CASE("init-from: constant positions stay, and the same grid changes nothing") {
  const at::Tensor constant = at::full({1, 24, 2}, 0.25, at::TensorOptions(at::kDouble));
  const at::Tensor resized = train::resize_positions(constant, {4, 6}, {9, 5});
  CHECK(testing::relative_error(resized, at::full({1, 45, 2}, 0.25, at::TensorOptions(at::kDouble))) <= 1e-14);
  const at::Tensor positions = testing::normal_tensor({1, 24, 3}, 5);
  CHECK(testing::relative_error(train::resize_positions(positions, {4, 6}, {4, 6}), positions) <= 1e-15);
}
