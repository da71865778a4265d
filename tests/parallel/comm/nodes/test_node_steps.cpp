// In which steps nodes exchange the parts of a sum: who gives whom what, and that nothing is missing or sent twice.
#include <doctest/doctest.h>

#include <algorithm>
#include <vector>

#include "parallel/comm/nodes/node_link.h"

using namespace vit_hybrid;
using comm::NodeSteps;

TEST_CASE("node steps: after each step the peers have shared out what each of them had, and each part has one owner") {
  for (int n = 1; n <= 96; ++n) {
    CAPTURE(n);
    const NodeSteps steps(n, 3);
    std::vector<int> owners(static_cast<size_t>(n), 0);
    for (int node = 0; node < n; ++node) {
      ++owners[static_cast<size_t>(steps.place(node))];
      CHECK(steps.node_at(steps.place(node)) == node);
      CHECK(steps.places(steps.count() - 1, node) == Range{steps.place(node), steps.place(node) + 1});
      Range had{0, n};
      int sent = 0;
      for (int step = 0; step < steps.count(); ++step) {
        const std::vector<int> peers = steps.peers(step, node);
        CHECK(std::is_sorted(peers.begin(), peers.end()));
        CHECK(std::count(peers.begin(), peers.end(), node) == 1);
        std::vector<Range> shares;
        for (const int peer : peers) {
          CHECK(steps.peers(step, peer) == peers);
          shares.push_back(steps.places(step, peer));
        }
        int64_t end = had.begin;
        for (const Range share : shares) {
          CHECK(share.begin == end);
          end = share.end;
        }
        CHECK(end == had.end);
        sent += static_cast<int>(peers.size()) - 1;
        had = steps.places(step, node);
      }
      CHECK(sent == steps.messages());
    }
    CHECK(owners == std::vector<int>(static_cast<size_t>(n), 1));
  }
}

TEST_CASE("node steps: few nodes exchange at once, many with few, in runs that the balanced tree has") {
  const auto messages = [](int n) { return NodeSteps(n, 15).messages(); };
  CHECK(messages(1) == 0);
  CHECK(messages(15) == 14);
  CHECK(messages(16) == 6);    // 4 x 4
  CHECK(messages(24) == 8);    // 4 runs of 6
  CHECK(messages(96) == 18);   // 8 runs of 12
  CHECK(messages(256) == 30);  // 16 x 16
  CHECK(messages(34) == 17);   // 2 runs of 17
  CHECK(messages(33) == 32);   // halves that are not even
  // Runs are ranges that halving comes to: Partition halves 24 into 12, and those into 6.
  CHECK(NodeSteps(24, 15).peers(0, 7) == std::vector<int>{6, 7, 8, 9, 10, 11});
  CHECK(NodeSteps(24, 15).peers(1, 7) == std::vector<int>{1, 7, 13, 19});
}
