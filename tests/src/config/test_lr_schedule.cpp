// The learning-rate schedules against their closed forms and PyTorch's OneCycleLR.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>

#include "src/config/lr_schedule.h"
#include "tests/support/contains.h"
#include "tests/support/thrown_error.h"

using vit_hybrid::train::lr_table;
using vit_hybrid::train::LrSchedule;

TEST_CASE("lr_schedule: cosine is lr0/2 (1 + cos(pi t/T))") {
  const LrSchedule schedule{LrSchedule::Kind::kCosine, 5e-4, 0, 128};
  CHECK(schedule.at(0) == doctest::Approx(5e-4).epsilon(1e-15));
  CHECK(schedule.at(32) == doctest::Approx(2.5e-4 * (1.0 + std::sqrt(0.5))).epsilon(1e-12));
  CHECK(schedule.at(64) == doctest::Approx(2.5e-4).epsilon(1e-12));
  CHECK(schedule.at(128) == doctest::Approx(0.0));
  CHECK(schedule.at(1000) == doctest::Approx(0.0));
}

TEST_CASE("lr_schedule: the decay begins where the warm-up ends, from the full rate, and ends at min-lr") {
  // Closed forms with exact values: cos(pi/3) = 1/2, cos(pi/2) = 0, cos(2 pi/3) = -1/2.
  const LrSchedule cosine{LrSchedule::Kind::kCosine, 1.0, 10, 70, 0.2};
  CHECK(cosine.at(0) == doctest::Approx(0.1));
  CHECK(cosine.at(4) == doctest::Approx(0.5));
  CHECK(cosine.at(9) == doctest::Approx(1.0));
  CHECK(cosine.at(10) == doctest::Approx(1.0));
  CHECK(cosine.at(30) == doctest::Approx(0.2 + 0.8 * 0.75));
  CHECK(cosine.at(40) == doctest::Approx(0.6));
  CHECK(cosine.at(50) == doctest::Approx(0.2 + 0.8 * 0.25));
  CHECK(cosine.at(70) == doctest::Approx(0.2));
  CHECK(cosine.at(1000) == doctest::Approx(0.2));
  const LrSchedule linear{LrSchedule::Kind::kLinear, 1.0, 10, 70, 0.4};
  CHECK(linear.at(9) == doctest::Approx(1.0));
  CHECK(linear.at(10) == doctest::Approx(1.0));
  CHECK(linear.at(40) == doctest::Approx(0.7));
  CHECK(linear.at(69) == doctest::Approx(0.41));
  CHECK(linear.at(70) == doctest::Approx(0.4));
  const LrSchedule wsd{LrSchedule::Kind::kWsd, 1.0, 10, 100, 0.0, 0.2};
  CHECK(wsd.at(4) == doctest::Approx(0.5));
  CHECK(wsd.at(10) == 1.0);
  CHECK(wsd.at(80) == 1.0);
  CHECK(wsd.at(85) == doctest::Approx(0.75));
  CHECK(wsd.at(99) == doctest::Approx(0.05));
  CHECK(wsd.at(100) == doctest::Approx(0.0));
  // The case that jumped from 1e-3 to 5e-4.
  const LrSchedule half{LrSchedule::Kind::kCosine, 1e-3, 10, 20};
  CHECK(half.at(9) == doctest::Approx(1e-3));
  CHECK(half.at(10) == doctest::Approx(1e-3));
  CHECK(half.at(15) == doctest::Approx(5e-4));
}

TEST_CASE("lr_schedule: no rule jumps, whatever the lengths of its parts") {
  using Kind = LrSchedule::Kind;
  for (const Kind kind : {Kind::kConstant, Kind::kCosine, Kind::kLinear, Kind::kWsd, Kind::kCosineReference}) {
    for (const int64_t total : {1, 2, 7, 20, 1000}) {
      for (int64_t warmup = 0; warmup <= total; warmup += std::max<int64_t>(1, total / 7)) {
        const LrSchedule schedule{kind, 1.0, warmup, total, kind == Kind::kCosineReference ? 0.0 : 0.1};
        if (!schedule.problem().empty()) {
          CHECK(kind == Kind::kWsd);
          continue;
        }
        const int64_t fall = kind == Kind::kWsd               ? schedule.decay_steps()
                             : kind == Kind::kCosineReference ? total
                                                              : total - warmup;
        const double most = std::max(1.0 / static_cast<double>(std::max<int64_t>(warmup, 1)),
                                     0.5 * std::numbers::pi / static_cast<double>(std::max<int64_t>(fall, 1)));
        CAPTURE(total);
        CAPTURE(warmup);
        for (int64_t t = 1; t < total; ++t) {
          const bool is_small = std::abs(schedule.at(t) - schedule.at(t - 1)) <= most * 1.001;
          CHECK_MESSAGE(is_small, t);
          CHECK(schedule.at(t) <= 1.0 + 1e-12);
        }
      }
    }
  }
}

TEST_CASE(
    "lr_schedule: cosine-reference is the workload's min((t+1)/w, (1+cos(pi t/T))/2), and cosine without warm-up") {
  const LrSchedule schedule{LrSchedule::Kind::kCosineReference, 2e-3, 40, 100};
  for (int t = 0; t < 100; ++t) {
    const double expected = 2e-3 * std::min((t + 1) / 40.0, (1.0 + std::cos(std::numbers::pi * t / 100.0)) / 2.0);
    CHECK(schedule.at(t) == doctest::Approx(expected).epsilon(1e-14));
  }
  const LrSchedule reference{LrSchedule::Kind::kCosineReference, 5e-4, 0, 128};
  const LrSchedule cosine{LrSchedule::Kind::kCosine, 5e-4, 0, 128};
  for (int t = 0; t < 128; ++t) {
    CHECK(reference.at(t) == cosine.at(t));
  }
}

TEST_CASE("lr_schedule: parts that are longer than the run are told, with their lengths") {
  using vit_hybrid::testing::contains;
  const auto problem = [](LrSchedule schedule) { return schedule.problem(); };
  CHECK(problem({LrSchedule::Kind::kCosine, 1.0, 20, 20}).empty());
  CHECK(contains(problem({LrSchedule::Kind::kCosine, 1.0, 21, 20}), "--warmup is 21, longer than the run of 20"));
  CHECK(problem({LrSchedule::Kind::kWsd, 1.0, 80, 100, 0.0, 0.2}).empty());
  CHECK(contains(problem({LrSchedule::Kind::kWsd, 1.0, 81, 100, 0.0, 0.2}), "decay over 20 iterations"));
}

TEST_CASE("lr_schedule: the table has the turning points, and all iterations where they are asked for") {
  const LrSchedule schedule{LrSchedule::Kind::kWsd, 1.0, 4, 8, 0.0, 0.25};
  CHECK(lr_table(schedule, 1) == "# step rate\n1 0.25\n2 0.5\n3 0.75\n4 1\n5 1\n6 1\n7 1\n8 0.5\n");
  CHECK(lr_table(schedule, 100) == "# step rate\n1 0.25\n4 1\n5 1\n7 1\n8 0.5\n");
  const std::string few = lr_table({LrSchedule::Kind::kCosine, 1.0, 777, 300000}, 0);
  CHECK(std::count(few.begin(), few.end(), '\n') < 210);
  CHECK(vit_hybrid::testing::contains(few, "\n777 1\n"));
  CHECK(vit_hybrid::testing::contains(few, "\n300000 "));
}

TEST_CASE("lr_schedule: a table of more lines than anyone reads is refused, with what is allowed") {
  using vit_hybrid::testing::contains;
  const LrSchedule longest{LrSchedule::Kind::kCosine, 1.0, 0, int64_t{1} << 48};
  const vit_hybrid::Error error = vit_hybrid::testing::thrown_error([&] { lr_table(longest, 1); });
  CHECK(error.error_class() == vit_hybrid::ErrorClass::kUsage);
  CHECK(contains(error.message(), "--print-lr-every is 1, which makes 281474976710656 lines"));
  CHECK(contains(error.message(), "allowed: auto, or at least 281474977"));
  const std::string allowed = lr_table(longest, 281474977);
  CHECK(std::count(allowed.begin(), allowed.end(), '\n') <= 1000010);
  const std::string usual = lr_table(longest, 0);
  CHECK(std::count(usual.begin(), usual.end(), '\n') < 210);
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
