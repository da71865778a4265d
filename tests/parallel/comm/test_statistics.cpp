// Statistics of communication: counters, and sources that know late.
#include <doctest/doctest.h>

#include <string>
#include <string_view>

#include "parallel/comm/statistics.h"
#include "tests/support/statistics.h"

using namespace vit_hybrid;

namespace {

double blocked_in(std::string_view phase) {
  double seconds = 0.0;
  for (const comm::PhaseBlocked& blocked : comm::blocked_by_phase()) {
    seconds += blocked.phase == phase ? blocked.seconds : 0.0;
  }
  return seconds;
}

}  // namespace

TEST_CASE("statistics: a source is asked each time, before the counters are read, as long as it lives") {
  const double before = testing::statistics_of("unit").blocked_seconds;
  {
    const comm::StatisticsSource source([] { comm::add_blocked_seconds("unit", {"forward", 0.5}); });
    CHECK(testing::statistics_of("unit").blocked_seconds == before + 0.5);
    const comm::StatisticsSource other([] { comm::add_blocked_seconds("unit", {"backward", 2.0}); });
    CHECK(testing::statistics_of("unit").blocked_seconds == before + 3.0);
  }
  CHECK(testing::statistics_of("unit").blocked_seconds == before + 3.0);
}

TEST_CASE("statistics: time blocked is counted by phase, over all axes, and phases are told by their text") {
  static const std::string same = "unit phase";  // at another place than the literal
  const comm::PhaseBlocked before = comm::total_of(comm::blocked_by_phase());
  comm::add_blocked_seconds("unit", {"unit phase", 1.0, 0.5});
  comm::add_blocked_seconds("other unit", {same.c_str(), 2.0, 0.25});
  comm::add_blocked_seconds("unit", {"other unit phase", 4.0});
  CHECK(blocked_in("unit phase") == 3.0);
  CHECK(blocked_in("other unit phase") == 4.0);
  const comm::PhaseBlocked after = comm::total_of(comm::blocked_by_phase());
  CHECK(after.seconds - before.seconds == 7.0);
  CHECK(after.without_core - before.without_core == 0.75);
}
