// Statistics of communication: counters, and sources that know late.
#include <doctest/doctest.h>

#include "parallel/comm/statistics.h"
#include "tests/support/statistics.h"

using namespace vit_hybrid;

TEST_CASE("statistics: a source is asked each time, before the counters are read, as long as it lives") {
  const double before = testing::statistics_of("unit").blocked_seconds;
  {
    const comm::StatisticsSource source([] { comm::add_blocked_seconds("unit", 0.5); });
    CHECK(testing::statistics_of("unit").blocked_seconds == before + 0.5);
    const comm::StatisticsSource other([] { comm::add_blocked_seconds("unit", 2.0); });
    CHECK(testing::statistics_of("unit").blocked_seconds == before + 3.0);
  }
  CHECK(testing::statistics_of("unit").blocked_seconds == before + 3.0);
}
