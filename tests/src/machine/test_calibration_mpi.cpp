// Rates of messages as they are measured between the ranks of a node.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "parallel/comm/mpi/mpi_group.h"
#include "src/machine/calibration.h"

using namespace vit_hybrid;
using namespace vit_hybrid::train;

TEST_CASE("calibration: messages between ranks have a rate for each group and size, the same on every rank") {
  const comm::MpiGroup world = comm::MpiGroup::world();
  if (world.size() > 2) {
    return;  // more take long where they share cores
  }
  const RateTables tables = calibrate_messages(world);
  if (world.size() == 1) {
    CHECK(tables.empty());
    return;
  }
  REQUIRE(tables.size() == message_kinds().size());
  for (const WorkKind& kind : message_kinds()) {
    const RateTable& table = tables.at(kind.name);
    REQUIRE(table.axes.size() == kind.axes.size());
    size_t points = 1;
    for (size_t i = 0; i < kind.axes.size(); ++i) {
      CHECK(table.axes[i].name == kind.axes[i]);
      points *= table.axes[i].points.size();
    }
    CHECK(table.rates.size() == points);
    CHECK(std::all_of(table.rates.begin(), table.rates.end(),
                      [](double rate) { return std::isfinite(rate) && rate > 1e3 && rate < 1e13; }));
    std::vector<double> sums = table.rates;
    world.sum(sums);
    for (size_t i = 0; i < sums.size(); ++i) {
      CHECK(sums[i] == doctest::Approx(2.0 * table.rates[i]));
    }
  }
  const NodeRates nodes = calibrate_nodes(world);
  CHECK((nodes.bytes_per_s == 0.0) == world.is_on_one_node());
}
