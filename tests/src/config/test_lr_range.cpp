// The range test's smoothing, slopes and end, on losses that are given.
#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "src/base/text.h"
#include "src/config/lr_schedule.h"
#include "tests/support/contains.h"

using namespace vit_hybrid;
using namespace vit_hybrid::train;
using namespace vit_hybrid::testing;
using doctest::Approx;

namespace {

// Rates from 1e-7 to 10, and a loss for each, until it has diverged.
template <class Loss>
LrRange range_of(int steps, Loss loss) {
  const LrSchedule schedule{LrSchedule::Kind::kRange, 10.0, 0, steps, 1e-7};
  LrRange range(steps);
  for (int t = 0; t < steps && !range.has_diverged(); ++t) {
    range.add(schedule.at(t), loss(schedule.at(t)));
  }
  return range;
}

}  // namespace

TEST_CASE("lr range: rates rise exponentially from the first to the last step") {
  const LrSchedule schedule{LrSchedule::Kind::kRange, 10.0, 0, 9, 1e-7};
  CHECK(schedule.at(0) == Approx(1e-7));
  CHECK(schedule.at(4) == Approx(1e-3));
  CHECK(schedule.at(8) == Approx(10.0));
  CHECK(schedule.at(9) == Approx(10.0));
}

TEST_CASE("lr range: losses are smoothed by an exponential mean without its bias") {
  LrRange range(100);
  range.add(1e-3, 2.0);
  range.add(1e-2, 4.0);
  const Json curve = range.to_json()["curve"];
  CHECK(curve[0][2].get<double>() == Approx(2.0));
  CHECK(curve[1][2].get<double>() == Approx((0.9 * 2.0 + 4.0) / 1.9));
}

TEST_CASE("lr range: a loss that falls about 1e-3 and explodes from 1 on") {
  const LrRange range = range_of(1000, [](double lr) {
    const double fallen = 1.0 / (1.0 + std::exp(-4.0 * std::log10(lr / 1e-3)));
    return 2.0 - fallen + (lr > 1.0 ? 1e3 * lr : 0.0);
  });
  CHECK(range.has_diverged());
  CHECK(range.steepest() > 1e-3);  // smoothing lags
  CHECK(range.steepest() < 1e-2);
  CHECK(range.of_least_loss() > range.steepest());
  CHECK(range.of_least_loss() <= 1.1);
  CHECK(range.to_json()["curve"].size() < 1000);
  const std::string text = join(range.lines(), "\n");
  CHECK(contains(text, "the smoothed loss diverged at a learning rate of 1"));
  CHECK(contains(text, "it fell fastest at --lr 0.00"));
}

TEST_CASE("lr range: where the loss falls again from higher up, behind its least, nothing is advised") {
  const LrRange range = range_of(40, [](double lr) { return lr < 1e-2 ? 1.0 - 10.0 * lr : lr < 0.3 ? 3.0 : 1.5; });
  CHECK_FALSE(range.has_diverged());
  CHECK(range.steepest() > 0.0);
  CHECK(range.steepest() <= range.of_least_loss());
}

TEST_CASE("lr range: losses that are not finite, that never fall, and too few") {
  const LrRange infinite =
      range_of(100, [](double lr) { return lr > 1e-2 ? std::numeric_limits<double>::quiet_NaN() : 1.0 - lr; });
  CHECK(infinite.has_diverged());
  CHECK(infinite.of_least_loss() <= 1e-2);
  CHECK(infinite.of_least_loss() > 5e-3);
  const LrRange rising = range_of(50, [](double lr) { return 1.0 + lr; });
  CHECK(rising.steepest() == 0.0);
  CHECK(rising.to_json()["steepest"].is_null());
  CHECK(contains(join(rising.lines()), "and fell nowhere"));
  CHECK(LrRange(10).lines().empty());
  CHECK(LrRange(10).of_least_loss() == 0.0);
}
