// A tournament of the nodes' first ranks.
#include "parallel/comm/link_rates.h"

#include <algorithm>
#include <numeric>

#include "src/base/timer.h"

namespace vit_hybrid::comm {

namespace {

constexpr int kMessages = 3;

void send_to(const MpiGroup& world, int rank, const std::vector<char>& bytes) {
  for (int i = 0; i < kMessages; ++i) {
    char is_ready = 0;
    world.receive(&is_ready, 1, rank);
    world.send(bytes.data(), std::ssize(bytes), rank);
  }
}

double rate_from(const MpiGroup& world, int rank, std::vector<char>& bytes) {
  double best = 0.0;
  for (int i = 0; i < kMessages; ++i) {
    const char is_ready = 1;
    const Timer timer;
    world.send(&is_ready, 1, rank);
    world.receive(bytes.data(), std::ssize(bytes), rank);
    best = std::max(best, static_cast<double>(bytes.size()) / timer.seconds());
  }
  return best;
}

}  // namespace

int partner(int node, int round, int players) {
  const int others = players - 1;
  if (node == others) {
    return round * (players / 2) % others;  // whose partner among the others would be itself
  }
  const int mirror = (round - node + others) % others;
  return mirror == node ? others : mirror;
}

LinkRates measure_link_rates(const MpiGroup& world, const std::vector<int>& nodes, int64_t bytes) {
  const auto num_nodes = static_cast<int>(nodes.size());
  if (num_nodes == 1) {
    return {};
  }
  std::vector<int> first(nodes.size(), 0);  // rank of each node
  std::partial_sum(nodes.begin(), nodes.end() - 1, first.begin() + 1);
  const auto own = std::find(first.begin(), first.end(), world.rank());
  LinkRates rates;
  if (own != first.end()) {
    const auto node = static_cast<int>(own - first.begin());
    std::vector<char> buffer(static_cast<size_t>(bytes));
    std::vector<double> received(nodes.size(), 0.0);
    const int players = num_nodes + num_nodes % 2;
    for (int round = 0; round + 1 < players; ++round) {
      const int other = partner(node, round, players);
      if (other == num_nodes) {
        continue;  // an odd number: one rests
      }
      const int rank = first[static_cast<size_t>(other)];
      if (node < other) {
        send_to(world, rank, buffer);
      }
      received[static_cast<size_t>(other)] = rate_from(world, rank, buffer);
      if (node > other) {
        send_to(world, rank, buffer);
      }
    }
    const auto row_bytes = static_cast<int64_t>(received.size() * sizeof(double));
    if (world.rank() != 0) {
      world.send(received.data(), row_bytes, 0);
    } else {
      rates.assign(nodes.size(), std::vector<double>(nodes.size(), 0.0));
      for (size_t to = 0; to < nodes.size(); ++to) {
        if (to > 0) {
          world.receive(received.data(), row_bytes, first[to]);
        }
        for (size_t from = 0; from < nodes.size(); ++from) {
          rates[from][to] = received[from];
        }
      }
    }
  }
  world.barrier();
  return rates;
}

}  // namespace vit_hybrid::comm
