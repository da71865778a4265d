// The tournament between ranks that are taken for nodes.
#include <doctest/doctest.h>

#include <vector>

#include "src/report/network_watch.h"

using namespace vit_hybrid;

TEST_CASE("network: a suspicion that the links do not confirm is not told, and slow communication is") {
  const comm::MpiGroup world = comm::MpiGroup::world();
  train::NetworkWatch watch(world);  // of one node, which has no links
  int64_t step = 0;
  const auto steps_until_turned = [&](double blocked) {
    for (const int64_t first = step; step < first + 60;) {
      if (watch.add(++step, 0.1, blocked)) return step - first;
    }
    return int64_t{0};
  };
  CHECK(steps_until_turned(0.01) == 0);
  const int64_t suspected = steps_until_turned(0.025);
  CHECK(suspected > 1);
  CHECK(watch.tell(step).is_null());
  CHECK(watch.spells().empty());
  CHECK(steps_until_turned(0.025) >= suspected - 1);
  const Json record = watch.tell(step);
  CHECK(record["slow"] == true);
  CHECK(record["slow_link"] == false);
  CHECK(watch.spells().size() == 1);
  CHECK(steps_until_turned(0.01) > 0);
  CHECK(watch.tell(step)["slow"] == false);
}

TEST_CASE("link rates: rank 0 has one for each direction of each pair of nodes, whatever their number of ranks") {
  const comm::MpiGroup world = comm::MpiGroup::world();
  std::vector<std::vector<int>> cases = {std::vector<int>(static_cast<size_t>(world.size()), 1), {world.size()}};
  if (world.size() > 2) {
    cases.push_back({world.size() - 1, 1});
    cases.push_back({1, world.size() - 2, 1});
  }
  for (const std::vector<int>& nodes : cases) {
    const train::LinkRates rates = train::measure_link_rates(world, nodes, 100'000);
    if (world.rank() != 0 || nodes.size() == 1) {
      CHECK(rates.empty());
      continue;
    }
    REQUIRE(rates.size() == nodes.size());
    for (size_t from = 0; from < rates.size(); ++from) {
      for (size_t to = 0; to < rates.size(); ++to) {
        CHECK((rates[from][to] > 0.0) == (from != to));
      }
    }
  }
}
