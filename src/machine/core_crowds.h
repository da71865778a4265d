// Crowds: the ranks of a node that may use the same cores.
#pragma once

#include <cstddef>
#include <vector>

#include "src/machine/placement.h"

namespace vit_hybrid::train {

/// Ranks of a node, each of which may share a core with another of them, and how many cores these are.
struct CoreCrowd {
  std::vector<int> ranks;
  size_t cores = 0;

  /// Of each rank, at least one.
  int fair_share() const;
};

/// The ranks of a node whose cores are known.
struct NodeCrowds {
  std::vector<CoreCrowd> crowds;

  size_t num_ranks() const;
  /// Cores that some rank may run on.
  size_t cores_in_use() const;
};

/// Node by node. Ranks of which no cores are known are in none of them.
std::vector<NodeCrowds> crowds_of_nodes(const std::vector<RankPlacement>& ranks);

/// Whether it is known on which cores a rank may run.
bool has_known_cores(const RankPlacement& rank);

}  // namespace vit_hybrid::train
