// The checks of a placement, node by node.
#include "src/machine/placement.h"

#include <algorithm>
#include <iterator>
#include <set>

#include "src/base/text.h"
#include "src/machine/core_crowds.h"

namespace vit_hybrid::train {

namespace {

// The ranks with one problem, and the one line about it; the numbers in it are of the first of them.
struct Finding {
  std::vector<int> ranks;
  std::string text;

  void add(const std::vector<int>& more, const std::string& about) {
    text = ranks.empty() ? about : text;
    ranks.insert(ranks.end(), more.begin(), more.end());
  }
};

std::string ranks_text(std::vector<int> ranks) {
  std::sort(ranks.begin(), ranks.end());
  return str(ranks.size() == 1 ? "rank " : "ranks ", number_list(ranks));
}

std::string counted(size_t count, const std::string& noun) {
  return str(count, " ", noun, count == 1 ? "" : "s");
}

std::string binding(int threads) {
  return str("bind each rank to cores of its own: srun --cpus-per-task=", threads,
             " --cpu-bind=cores, or mpirun --map-by slot:PE=", threads, " --bind-to core");
}

bool is_within(const std::vector<int>& part, const std::vector<int>& whole) {
  return std::includes(whole.begin(), whole.end(), part.begin(), part.end());
}

class Checks {
 public:
  explicit Checks(const std::vector<RankPlacement>& ranks) : ranks_(ranks) {
    for (size_t rank = 0; rank < ranks.size(); ++rank) {
      if (!has_known_cores(ranks[rank])) {
        unknown_.add({static_cast<int>(rank)}, str("no cores in /sys/devices/system of ", ranks[rank].host));
      }
    }
    for (const NodeCrowds& node : crowds_of_nodes(ranks)) {
      check(node);
    }
  }

  std::vector<PlacementRemark> remarks() const {
    using Kind = PlacementRemark::Kind;
    std::vector<PlacementRemark> out;
    const auto put = [&](Kind kind, const char* what, const Finding& finding) {
      if (!finding.ranks.empty()) {
        out.push_back({kind, str(what, " (", ranks_text(finding.ranks), "): ", finding.text)});
      }
    };
    put(Kind::kNote, "not checked", unknown_);
    put(Kind::kNote, "more ranks than cores", turns_);
    put(Kind::kNote, "idle cores", idle_);
    put(Kind::kWarning, "more threads than cores in a rank", own_cores_);
    put(Kind::kWarning, "ranks on the same cores", shared_);
    put(Kind::kWarning, "more threads than cores", full_);
    put(Kind::kWarning, "threads of a rank over several sockets", sockets_);
    put(Kind::kWarning, "memory far from the cores", memory_);
    return out;
  }

 private:
  const RankPlacement& of(int rank) const { return ranks_[static_cast<size_t>(rank)]; }

  // Of a rank that may run on enough cores.
  size_t running_threads(int rank) const {
    return std::min(static_cast<size_t>(of(rank).threads), of(rank).cores.size());
  }

  void check(const NodeCrowds& node) {
    bool is_idle = true;
    std::vector<int> all;
    for (const CoreCrowd& crowd : node.crowds) {
      check(crowd, node);
      for (const int rank : crowd.ranks) {
        is_idle = is_idle && of(rank).is_automatic;
        all.push_back(rank);
      }
    }
    const RankPlacement& first = of(all.front());
    const auto node_cores = static_cast<size_t>(first.node_cores);
    if (is_idle && node.cores_in_use() + all.size() <= node_cores) {  // room for another thread of each
      idle_.add(all, str(node_cores - node.cores_in_use(), " of the ", node_cores, " cores of ", first.host,
                         " are not used, because ranks are bound to the others; unless they are another job's, ",
                         binding(static_cast<int>(node_cores / all.size()))));
    }
  }

  void check(const CoreCrowd& crowd, const NodeCrowds& node) {
    size_t threads = 0;
    for (const int rank : crowd.ranks) {
      threads += running_threads(rank);
      check_own_cores(rank);
    }
    if (threads > crowd.cores) {
      describe(crowd, threads, node);
      return;
    }
    for (const int rank : crowd.ranks) {
      check_sockets(rank);
      check_memory(rank);
    }
  }

  void check_own_cores(int rank) {
    const auto threads = of(rank).threads;
    const size_t cores = of(rank).cores.size();
    if (static_cast<size_t>(threads) <= cores) {
      return;
    }
    const bool has_all = cores == static_cast<size_t>(of(rank).node_cores);
    own_cores_.add({rank}, str(threads, " threads on ", counted(cores, "core"), " each; give --threads ", cores,
                               has_all ? "" : ", or " + binding(threads)));
  }

  void describe(const CoreCrowd& crowd, size_t threads, const NodeCrowds& node) {
    const RankPlacement& first = of(crowd.ranks.front());
    const std::string what = str(counted(threads, "thread"), " on ", counted(crowd.cores, "core"), " of ", first.host);
    const auto node_cores = static_cast<size_t>(first.node_cores);
    const size_t used = node.cores_in_use();
    if (crowd.cores < node_cores && node.num_ranks() * static_cast<size_t>(first.threads) <= node_cores) {
      const std::string free =
          used < node_cores ? str(", while ", node_cores - used, " of its ", node_cores, " are free") : "";
      shared_.add(crowd.ranks, str(what, free, "; ", binding(first.threads)));
    } else if (crowd.ranks.size() > crowd.cores) {
      turns_.add(crowd.ranks, str(what, ", in turns; for speed start no more ranks than cores"));
    } else {
      full_.add(crowd.ranks, str(what, "; give --threads ", crowd.fair_share()));
    }
  }

  void check_sockets(int rank) {
    const RankPlacement& place = of(rank);
    if (place.sockets.size() > 1) {
      sockets_.add({rank}, str("they may run on ", place.sockets.size(),
                               " of them; start at least one rank a socket, and ", binding(place.threads)));
    }
  }

  void check_memory(int rank) {
    const RankPlacement& place = of(rank);
    if (!place.memories.empty() && !is_within(place.near_memories, place.memories)) {
      memory_.add({rank}, str("it comes from NUMA node ", number_list(place.memories), ", and the cores are those of ",
                              number_list(place.near_memories),
                              "; give srun --mem-bind=local, or bind both to the same nodes (numactl)"));
    }
  }

  const std::vector<RankPlacement>& ranks_;
  Finding unknown_;
  Finding turns_;
  Finding idle_;
  Finding own_cores_;
  Finding shared_;
  Finding full_;
  Finding sockets_;
  Finding memory_;
};

}  // namespace

RankPlacement place_rank(const NodeTopology& topology, const std::vector<int>& processors,
                         const std::vector<int>& memories, int threads) {
  RankPlacement place;
  place.threads = threads;
  place.cores = topology.cores_of(processors);
  place.memories = memories;
  std::set<int> sockets;
  std::set<int> near;
  for (const int core : place.cores) {
    const NodeTopology::Processor& processor = topology.processors.at(core);
    sockets.insert(processor.socket);
    near.insert(processor.memory);
  }
  place.sockets.assign(sockets.begin(), sockets.end());
  std::set_intersection(near.begin(), near.end(), topology.memories.begin(), topology.memories.end(),
                        std::back_inserter(place.near_memories));
  return place;
}

std::vector<int> shared_out_threads(const std::vector<RankPlacement>& ranks) {
  std::vector<int> threads(ranks.size(), 1);
  for (const NodeCrowds& node : crowds_of_nodes(ranks)) {
    for (const CoreCrowd& crowd : node.crowds) {
      for (const int rank : crowd.ranks) {
        const auto own = static_cast<int>(ranks[static_cast<size_t>(rank)].cores.size());
        threads[static_cast<size_t>(rank)] = std::min(own, crowd.fair_share());
      }
    }
  }
  return threads;
}

std::vector<PlacementRemark> placement_remarks(const std::vector<RankPlacement>& ranks) {
  return Checks(ranks).remarks();
}

}  // namespace vit_hybrid::train
