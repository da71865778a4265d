// Placement: which cores, sockets and nodes the ranks and their threads stand on (topology and affinity, by hwloc), and
// what is wrong with it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "parallel/comm/mpi/mpi_group.h"

struct hwloc_topology;

namespace vit_hybrid::train {

/// Sockets, cores with their hardware threads, and NUMA nodes of a node, as hwloc has them; those that the job may not
/// use are marked. Null where hwloc has nothing.
using NodeTopology = std::shared_ptr<hwloc_topology>;

/// Of this node; from hwloc's XML where that is given.
NodeTopology load_topology(const std::string& xml = "");
/// Empty of null.
std::string topology_xml(const NodeTopology& topology);

/// One rank on its node. Cores are numbered by their first processors, where what Linux calls a processor is a core or
/// one of its hardware threads.
struct RankPlacement {
  int node = 0;
  std::string host;
  int threads = 1;
  bool is_automatic = false;       ///< nobody has asked for this number
  int node_cores = 0;              ///< that the job may use there, by its control group; 0: not known
  std::vector<int> cores;          ///< that the rank may run on
  int num_sockets = 0;             ///< of these cores
  std::vector<int> near_memories;  ///< NUMA nodes of these cores, where they have memory
  std::vector<int> memories;       ///< NUMA nodes that its memory may come from; empty: not known
  bool has_far_memory = false;     ///< none of them is near to some core that has one
};

/// A rank of `threads` threads that may run on some processors and take memory from some NUMA nodes of the topology.
/// Processors that are not in it are left out.
RankPlacement place_rank(const NodeTopology& topology, const std::vector<int>& processors,
                         const std::vector<int>& memories, int threads);

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

/// What each rank of this node finds about itself, in rank order; one of them reads the node's topology. `threads`: of
/// this rank; 0 where nobody has asked for a number, and it is automatic. Collective over `node`, the ranks of a node.
std::vector<RankPlacement> gather_placements(int threads, const comm::MpiGroup& node);

/// Where ranks run, with the threads of each.
struct Placements {
  RankPlacement own;
  std::vector<RankPlacement> all;  ///< in rank order, on rank 0; empty elsewhere
};

/// Sets the threads that this rank computes with: `threads`, else OMP_NUM_THREADS, else its share of the cores that it
/// may run on (shared_out_threads()). Error(kUsage) for far more than there are processors for, and where the system
/// does not start so many. Collective over `world`.
Placements set_threads(int threads, const comm::MpiGroup& world);

/// Prints the remarks about this job, on rank 0.
void report_placement(const Placements& placements);

}  // namespace vit_hybrid::train
