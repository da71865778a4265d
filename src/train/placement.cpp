// The checks of a placement, node by node.
#include "src/train/placement.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <numeric>
#include <set>
#include <unordered_map>

#include "src/base/text.h"

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

// Ranks of a node each of which may share a core with another of them, and how many cores these are.
struct Crowd {
  std::vector<int> ranks;
  size_t cores = 0;
};

class Checks {
 public:
  explicit Checks(const std::vector<RankPlacement>& ranks) : ranks_(ranks) {
    std::map<int, std::vector<int>> nodes;
    for (size_t rank = 0; rank < ranks.size(); ++rank) {
      const auto number = static_cast<int>(rank);
      if (of(number).node_cores == 0 || of(number).cores.empty()) {
        unknown_.add({number}, str("no cores in /sys/devices/system of ", of(number).host));
      } else {
        nodes[of(number).node].push_back(number);
      }
    }
    for (const auto& [node, members] : nodes) {
      const std::vector<Crowd> crowds = crowds_of(members);
      const auto used = std::accumulate(crowds.begin(), crowds.end(), size_t{0},
                                        [](size_t sum, const Crowd& crowd) { return sum + crowd.cores; });
      for (const Crowd& crowd : crowds) {
        check(crowd, used);
      }
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
    put(Kind::kWarning, "more threads than cores in a rank", own_cores_);
    put(Kind::kWarning, "ranks on the same cores", shared_);
    put(Kind::kWarning, "more threads than cores", full_);
    put(Kind::kWarning, "threads of a rank over several sockets", sockets_);
    put(Kind::kWarning, "memory far from the cores", memory_);
    return out;
  }

 private:
  const RankPlacement& of(int rank) const { return ranks_[static_cast<size_t>(rank)]; }

  std::vector<Crowd> crowds_of(const std::vector<int>& members) const {
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
      for (const int core : of(members[member]).cores) {
        const size_t first = first_on_core.emplace(core, member).first->second;
        leader[leader_of(member)] = leader_of(first);
      }
    }
    std::map<size_t, Crowd> crowds;
    for (size_t member = 0; member < members.size(); ++member) {
      crowds[leader_of(member)].ranks.push_back(members[member]);
    }
    for (const auto& [core, member] : first_on_core) {
      ++crowds[leader_of(member)].cores;
    }
    std::vector<Crowd> out;
    for (auto& [key, crowd] : crowds) {
      out.push_back(std::move(crowd));
    }
    return out;
  }

  // `used`: cores of the node that some rank may run on.
  void check(const Crowd& crowd, size_t used) {
    size_t threads = 0;
    for (const int rank : crowd.ranks) {
      threads += std::min(static_cast<size_t>(of(rank).threads), of(rank).cores.size());
      check_own_cores(rank);
    }
    if (threads > crowd.cores) {
      describe(crowd, threads, used);
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

  void describe(const Crowd& crowd, size_t threads, size_t used) {
    const RankPlacement& first = of(crowd.ranks.front());
    const std::string what = str(counted(threads, "thread"), " on ", counted(crowd.cores, "core"), " of ", first.host);
    const auto node_cores = static_cast<size_t>(first.node_cores);
    if (crowd.cores < node_cores) {
      const std::string free =
          used < node_cores ? str(", while ", node_cores - used, " of its ", node_cores, " are free") : "";
      shared_.add(crowd.ranks, str(what, free, "; ", binding(first.threads)));
    } else if (crowd.ranks.size() > crowd.cores) {
      turns_.add(crowd.ranks, str(what, ", in turns; for speed start no more ranks than cores"));
    } else {
      full_.add(crowd.ranks, str(what, "; give --threads ", crowd.cores / crowd.ranks.size()));
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

std::vector<PlacementRemark> placement_remarks(const std::vector<RankPlacement>& ranks) {
  return Checks(ranks).remarks();
}

}  // namespace vit_hybrid::train
