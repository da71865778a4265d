// What is said of tables of link rates, and of slow communication.
#include <doctest/doctest.h>

#include <vector>

#include "src/report/network_watch.h"

using namespace vit_hybrid;
using namespace vit_hybrid::train;

namespace {

// Links of so many nodes, all of 100 MB/s.
LinkRates even(size_t nodes, double rate = 1e8) {
  LinkRates rates(nodes, std::vector<double>(nodes, rate));
  for (size_t node = 0; node < nodes; ++node) {
    rates[node][node] = 0.0;
  }
  return rates;
}

const std::vector<std::string> kHosts = {"a", "b", "c", "d"};

}  // namespace

TEST_CASE("links: a node that sends or receives slowly, or one link, is named, with what the others have") {
  LinkRates rates = even(4);
  for (const size_t to : {0, 1, 3}) {
    rates[2][to] = 5e7 + 1e6 * static_cast<double>(to);
  }
  CHECK(find_slow_link(rates, even(4), kHosts).text == "c sends 51 MB/s, the others 100 MB/s");
  rates = even(4);
  for (const size_t from : {0, 2, 3}) {
    rates[from][1] = 2e7;
  }
  CHECK(find_slow_link(rates, even(4), kHosts).text == "b receives 20 MB/s, the others 100 MB/s");
  rates = even(4);
  rates[0][3] = 6e7;
  CHECK(find_slow_link(rates, even(4), kHosts).text == "from a to d go 60 MB/s, over the other links 100 MB/s");
}

TEST_CASE("links: of two nodes each direction is a link") {
  LinkRates rates = even(2, 1e10);
  rates[1][0] = 5e9;
  CHECK(find_slow_link(rates, even(2, 1e10), {"a", "b"}).text == "from b to a go 5 GB/s, the other way 10 GB/s");
}

TEST_CASE("links: where all are slow it is said, and where none is, too") {
  CHECK(find_slow_link(even(3, 4e7), even(3), kHosts).text == "all links are slow: 40 MB/s, at the start 100 MB/s");
  CHECK(find_slow_link(even(3, 9e7), even(3), kHosts).text ==
        "no link is slow by itself: 90 MB/s, at the start 100 MB/s");
  CHECK(find_slow_link(even(2, 4e7), even(2), kHosts).text == "all links are slow: 40 MB/s, at the start 100 MB/s");
  CHECK(find_slow_link(even(3, 4e7), even(3), kHosts).is_slow);
  CHECK_FALSE(find_slow_link(even(3, 9e7), even(3), kHosts).is_slow);
  const LinkSummary summary = summary_of({{0.0, 3.0, 4.0}, {5.0, 0.0, 2.0}, {6.0, 7.0, 0.0}});
  CHECK(summary.median == 5.0);
  CHECK(summary.slowest == 2.0);
  CHECK(summary.from == 1);
  CHECK(summary.to == 2);
}

TEST_CASE("links: in a tournament every node meets every other one once, and has one partner a round") {
  for (int players = 2; players <= 32; players += 2) {
    std::vector<std::vector<int>> meetings(static_cast<size_t>(players),
                                           std::vector<int>(static_cast<size_t>(players), 0));
    for (int round = 0; round + 1 < players; ++round) {
      for (int node = 0; node < players; ++node) {
        const int other = partner(node, round, players);
        REQUIRE(other != node);
        REQUIRE(partner(other, round, players) == node);
        ++meetings[static_cast<size_t>(node)][static_cast<size_t>(other)];
      }
    }
    for (int a = 0; a < players; ++a) {
      for (int b = 0; b < players; ++b) {
        CHECK(meetings[static_cast<size_t>(a)][static_cast<size_t>(b)] == (a == b ? 0 : 1));
      }
    }
  }
}

TEST_CASE("network: a line when communication becomes slow, and when it is so no more") {
  Json record = {{"step", 140},
                 {"slow", true},
                 {"from_step", 121},
                 {"to_step", nullptr},
                 {"seconds_per_step", 0.0602},
                 {"percent", 20.4},
                 {"found", "from b to a go 5 GB/s, the other way 10 GB/s"}};
  CHECK(network_line(record) ==
        "step 140: communication is slow since step 121: all ranks wait 60.2 ms a step (20.4 %) longer than before; "
        "from b "
        "to a go 5 GB/s, the other way 10 GB/s");
  record["slow"] = false;
  record["to_step"] = 139;
  CHECK(network_line(record) ==
        "step 140: communication is slow no more: in steps 121 to 139 it was, by 20.4 % of a step");
}
