// Placement: which cores, sockets and nodes the ranks and their threads stand on (topology, affinity), and what is
// wrong with it.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "parallel/comm/mpi/mpi_group.h"

namespace vit_hybrid::train {

/// "0-3,8" as {0, 1, 2, 3, 8}: how the kernel writes sets of processors and of NUMA nodes. Empty for what is none.
std::vector<int> parse_number_list(const std::string& text);
/// The inverse, of ascending numbers.
std::string number_list(const std::vector<int>& numbers);

struct NodeTopology {
  /// What the kernel calls a processor: a core, or one of its hardware threads.
  struct Processor {
    int core = 0;    ///< number of the core's first processor
    int socket = 0;  ///< its package
    int memory = 0;  ///< its NUMA node
  };
  std::map<int, Processor> processors;  ///< that are online, by number
  std::vector<int> memories;            ///< NUMA nodes that have memory

  std::vector<int> all_processors() const;
  /// Ascending; processors that are not online are left out.
  std::vector<int> cores_of(const std::vector<int>& processors) const;
};

/// From a folder like /sys/devices/system. No processors where there are no such files.
NodeTopology read_topology(const std::string& root = "/sys/devices/system");

/// Those that the job may use on this node, by its control group; all of the topology where there is none.
std::vector<int> job_processors(const NodeTopology& topology);

/// The NUMA nodes that new memory of this process may come from: what it is confined to, and its memory policy. Empty
/// where the kernel does not say.
std::vector<int> allowed_memories();

/// One rank on its node. Cores are numbered by their first processors.
struct RankPlacement {
  int node = 0;
  std::string host;
  int threads = 1;
  bool is_automatic = false;       ///< nobody has asked for this number
  int node_cores = 0;              ///< that the job may use there; 0: not known
  std::vector<int> cores;          ///< that the rank may run on
  std::vector<int> sockets;        ///< of these cores
  std::vector<int> near_memories;  ///< NUMA nodes of these cores, where they have memory
  std::vector<int> memories;       ///< NUMA nodes that its memory may come from; empty: not known
};

/// A rank of `threads` threads that may run on some processors and take memory from some NUMA nodes of the topology.
RankPlacement place_rank(const NodeTopology& topology, const std::vector<int>& processors,
                         const std::vector<int>& memories, int threads);

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

/// One kind of problem: the ranks that have it, and the option that mends it.
struct PlacementRemark {
  enum class Kind { kNote, kWarning };
  Kind kind = Kind::kWarning;
  std::string text;
};

/// What is wrong with the placement of all ranks, in rank order: at most one remark of each kind. More ranks than cores
/// on a node, which only somebody who tries things out has, is a note, and so are cores that nobody uses where nobody
/// has asked for so few threads. Pure.
std::vector<PlacementRemark> placement_remarks(const std::vector<RankPlacement>& ranks);

/// The number of threads that gives each rank, in rank order, an even share of the cores: of a node's cores that ranks
/// may use in common each gets as many as the others, at least one. Pure.
std::vector<int> shared_out_threads(const std::vector<RankPlacement>& ranks);

/// What each rank finds about itself, in rank order. `threads`: of this rank; 0 where nobody has asked for a number,
/// and it is automatic. Collective over `world`.
std::vector<RankPlacement> gather_placements(int threads, const comm::MpiGroup& world);

/// Prints the remarks about this job; ranks other than 0 print nothing.
void report_placement(const std::vector<RankPlacement>& ranks);

}  // namespace vit_hybrid::train
