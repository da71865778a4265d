// The learning-rate schedules against their closed forms and PyTorch's OneCycleLR.
#include <doctest/doctest.h>

#include <cmath>
#include <numbers>

#include "src/train/lr_schedule.h"

using vit_hybrid::train::LrSchedule;

TEST_CASE("lr_schedule: cosine is lr0/2 (1 + cos(pi t/T))") {
  const LrSchedule schedule{LrSchedule::Kind::kCosine, 5e-4, 0, 128};
  CHECK(schedule.at(0) == doctest::Approx(5e-4).epsilon(1e-15));
  CHECK(schedule.at(32) == doctest::Approx(2.5e-4 * (1.0 + std::sqrt(0.5))).epsilon(1e-12));
  CHECK(schedule.at(64) == doctest::Approx(2.5e-4).epsilon(1e-12));
  CHECK(schedule.at(128) == doctest::Approx(0.0));
  CHECK(schedule.at(1000) == doctest::Approx(0.0));
}

TEST_CASE("lr_schedule: warm-up is linear and ends in the cosine") {
  const LrSchedule schedule{LrSchedule::Kind::kCosine, 1.0, 10, 100};
  CHECK(schedule.at(0) == doctest::Approx(0.1));
  CHECK(schedule.at(4) == doctest::Approx(0.5));
  CHECK(schedule.at(9) == doctest::Approx(1.0));
  CHECK(schedule.at(10) == doctest::Approx(0.5 * (1.0 + std::cos(std::numbers::pi * 0.1))));
}

TEST_CASE("lr_schedule: constant stays, after its warm-up") {
  const LrSchedule schedule{LrSchedule::Kind::kConstant, 2.0, 4, 100};
  CHECK(schedule.at(0) == doctest::Approx(0.5));
  CHECK(schedule.at(3) == 2.0);
  CHECK(schedule.at(1000000) == 2.0);
}

TEST_CASE("lr_schedule: one-cycle has the values of torch.optim.lr_scheduler.OneCycleLR(max_lr=1, total_steps=10)") {
  const LrSchedule schedule{LrSchedule::Kind::kOneCycle, 1.0, 0, 10};
  const double expected[] = {0.04,
                             0.52,
                             1.0,
                             0.9504846320134737,
                             0.8117456539497631,
                             0.6112620219362893,
                             0.3887399780637107,
                             0.18825634605023691,
                             0.049519367986526286,
                             4e-6};
  for (int t = 0; t < 10; ++t) {
    CHECK(schedule.at(t) == doctest::Approx(expected[t]).epsilon(1e-5));
  }
}
