// ClockAlignment: the line between two offsets.
#include <doctest/doctest.h>

#include <cstdint>

#include "src/report/step_trace.h"

using vit_hybrid::train::ClockAlignment;
using vit_hybrid::train::ClockOffset;
using vit_hybrid::train::offset_between;

TEST_CASE("clock alignment: between two measurements the offset goes evenly from the one to the other") {
  constexpr int64_t kSecond = 1'000'000'000;
  constexpr int64_t kBoot = 3'000'000 * kSecond;  // nodes that were started a month apart
  const ClockAlignment clock(ClockOffset{kBoot, kBoot - 100, 700}, ClockOffset{kBoot + 10 * kSecond, kBoot + 900, 400});
  CHECK(clock.drift() == doctest::Approx(100.0));
  CHECK(clock.error() == 700);
  CHECK(clock.on_rank_0(kBoot) == 100);
  CHECK(clock.on_rank_0(kBoot + 10 * kSecond) == 10 * kSecond - 900);
  CHECK(clock.on_rank_0(kBoot + 5 * kSecond) == 5 * kSecond - 400);
  for (int64_t own = kBoot; own < kBoot + 40; ++own) {
    CHECK(clock.on_rank_0(own) <= clock.on_rank_0(own + 1));
  }
}

TEST_CASE("clock alignment: two measurements at one moment tell of no drift") {
  const ClockAlignment clock(ClockOffset{50, 20, 3}, ClockOffset{50, 24, 3});
  CHECK(clock.drift() == 0.0);
  CHECK(clock.on_rank_0(60) == 40);
}

TEST_CASE("clock alignment: a clock that may be rank 0's is taken for it, another is in the middle of its bounds") {
  const ClockOffset same = offset_between(-300, 2'000'000, 7);  // the answers came late
  CHECK(same.at == 7);
  CHECK(same.offset == 0);
  CHECK(same.error == 2'000'000);
  CHECK(offset_between(-300, 2'000'000, 7, /*is_one_clock=*/true).error == 0);
  CHECK(offset_between(300, 500, 7, /*is_one_clock=*/true).offset == 400);  // the messages know better
  const ClockOffset ahead = offset_between(4'999'000, 5'000'003, 7);
  CHECK(ahead.offset == 4'999'501);
  CHECK(ahead.error == 502);
  CHECK(offset_between(-5'000'000, -4'000'000, 7).offset == -4'500'000);
}
