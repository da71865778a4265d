// Crowds by union of ranks over their cores.
#include "src/machine/core_crowds.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <unordered_map>

namespace vit_hybrid::train {

namespace {

NodeCrowds crowds_of(const std::vector<RankPlacement>& ranks, const std::vector<int>& members) {
  std::vector<size_t> leader(members.size());
  std::iota(leader.begin(), leader.end(), size_t{0});
  const auto leader_of = [&](size_t member) {
    while (leader[member] != member) {
      member = leader[member] = leader[leader[member]];
    }
    return member;
  };
  std::unordered_map<int, size_t> first_on_core;
  for (size_t member = 0; member < members.size(); ++member) {
    for (const int core : ranks[static_cast<size_t>(members[member])].cores) {
      const size_t first = first_on_core.emplace(core, member).first->second;
      leader[leader_of(member)] = leader_of(first);
    }
  }
  std::map<size_t, CoreCrowd> crowds;
  for (size_t member = 0; member < members.size(); ++member) {
    crowds[leader_of(member)].ranks.push_back(members[member]);
  }
  for (const auto& [core, member] : first_on_core) {
    ++crowds[leader_of(member)].cores;
  }
  NodeCrowds out;
  for (auto& [key, crowd] : crowds) {
    out.crowds.push_back(std::move(crowd));
  }
  return out;
}

}  // namespace

int CoreCrowd::fair_share() const {
  return static_cast<int>(std::max<size_t>(1, cores / ranks.size()));
}

size_t NodeCrowds::num_ranks() const {
  return std::accumulate(crowds.begin(), crowds.end(), size_t{0},
                         [](size_t sum, const CoreCrowd& crowd) { return sum + crowd.ranks.size(); });
}

size_t NodeCrowds::cores_in_use() const {
  return std::accumulate(crowds.begin(), crowds.end(), size_t{0},
                         [](size_t sum, const CoreCrowd& crowd) { return sum + crowd.cores; });
}

std::vector<NodeCrowds> crowds_of_nodes(const std::vector<RankPlacement>& ranks) {
  std::map<int, std::vector<int>> nodes;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    if (has_known_cores(ranks[rank])) {
      nodes[ranks[rank].node].push_back(static_cast<int>(rank));
    }
  }
  std::vector<NodeCrowds> out;
  for (const auto& [node, members] : nodes) {
    out.push_back(crowds_of(ranks, members));
  }
  return out;
}

bool has_known_cores(const RankPlacement& rank) {
  return rank.node_cores > 0 && !rank.cores.empty();
}

}  // namespace vit_hybrid::train
