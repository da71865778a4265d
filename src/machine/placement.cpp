// Placement: what hwloc knows of a node and of this process, which ranks share cores, and what is wrong with that.
#include "src/machine/placement.h"

#include <ATen/Parallel.h>
#include <hwloc.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <latch>
#include <map>
#include <thread>

#include "parallel/comm/failure.h"
#include "src/base/error.h"
#include "src/base/host.h"
#include "src/base/json.h"
#include "src/base/log.h"
#include "src/base/text.h"

namespace vit_hybrid::train {

namespace {

using Bitmap = std::unique_ptr<hwloc_bitmap_s, decltype(&hwloc_bitmap_free)>;

Bitmap bitmap_of(const std::vector<int>& numbers) {
  Bitmap bitmap(hwloc_bitmap_alloc(), hwloc_bitmap_free);
  for (const int number : numbers) {
    hwloc_bitmap_set(bitmap.get(), static_cast<unsigned>(number));
  }
  return bitmap;
}

std::vector<int> numbers_of(hwloc_const_bitmap_t bitmap) {
  std::vector<int> numbers;
  for (int number = hwloc_bitmap_first(bitmap); number >= 0; number = hwloc_bitmap_next(bitmap, number)) {
    numbers.push_back(number);
  }
  return numbers;
}

// {0, 1, 2, 3, 8} as "0-3,8", and back.
std::string number_list(const std::vector<int>& numbers) {
  char* list = nullptr;
  hwloc_bitmap_list_asprintf(&list, bitmap_of(numbers).get());
  const std::unique_ptr<char, decltype(&std::free)> owner(list, std::free);
  return list == nullptr ? "" : list;
}

std::vector<int> parse_number_list(const std::string& list) {
  const Bitmap bitmap = bitmap_of({});
  hwloc_bitmap_list_sscanf(bitmap.get(), list.c_str());
  return numbers_of(bitmap.get());
}

// The objects at a depth that have any of the processors, ascending: NUMA nodes with memory by their own numbers,
// others by their first processors.
std::vector<int> objects_of(const NodeTopology& topology, int depth, hwloc_const_cpuset_t processors) {
  std::vector<int> numbers;
  hwloc_obj_t object = nullptr;
  while ((object = hwloc_get_next_obj_covering_cpuset_by_depth(topology.get(), processors, depth, object)) != nullptr) {
    if (object->type != HWLOC_OBJ_NUMANODE) {
      numbers.push_back(hwloc_bitmap_first(object->cpuset));
    } else if (object->attr->numanode.local_memory > 0) {
      numbers.push_back(static_cast<int>(object->os_index));
    }
  }
  std::sort(numbers.begin(), numbers.end());
  return numbers;
}

// The NUMA nodes that new memory of this process may come from: what the job is confined to, and its memory policy.
std::vector<int> own_memories(const NodeTopology& topology) {
  if (topology == nullptr) {
    return {};
  }
  const Bitmap memories = bitmap_of({});
  hwloc_membind_policy_t policy = HWLOC_MEMBIND_DEFAULT;
  if (hwloc_get_membind(topology.get(), memories.get(), &policy, HWLOC_MEMBIND_THREAD | HWLOC_MEMBIND_BYNODESET) != 0) {
    hwloc_bitmap_fill(memories.get());  // some containers forbid the call
  }
  hwloc_bitmap_and(memories.get(), memories.get(), hwloc_topology_get_allowed_nodeset(topology.get()));
  return numbers_of(memories.get());
}

// Ranks of a node, each of which may share a core with another of them, and these cores.
struct CoreCrowd {
  std::vector<int> ranks;
  std::vector<int> cores;

  bool has_any_of(const std::vector<int>& others) const {
    return std::any_of(others.begin(), others.end(),
                       [&](int core) { return std::binary_search(cores.begin(), cores.end(), core); });
  }
  // Of each rank, at least one.
  int fair_share() const { return static_cast<int>(std::max<size_t>(1, cores.size() / ranks.size())); }
};

std::vector<int> united(const std::vector<int>& a, const std::vector<int>& b) {
  std::vector<int> out;
  std::set_union(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(out));
  return out;
}

// Those of a node, by their lowest ranks.
using NodeCrowds = std::map<int, CoreCrowd>;

// By node. Ranks of which no cores are known are in none of them.
std::map<int, NodeCrowds> crowds_by_node(const std::vector<RankPlacement>& ranks) {
  std::map<int, NodeCrowds> nodes;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    if (ranks[rank].cores.empty()) {
      continue;
    }
    CoreCrowd crowd{{static_cast<int>(rank)}, ranks[rank].cores};
    NodeCrowds& node = nodes[ranks[rank].node];
    std::erase_if(node, [&](const auto& other) {
      const bool is_met = other.second.has_any_of(ranks[rank].cores);
      if (is_met) {
        crowd = {united(crowd.ranks, other.second.ranks), united(crowd.cores, other.second.cores)};
      }
      return is_met;
    });
    node.emplace(crowd.ranks.front(), crowd);
  }
  return nodes;
}

using Kind = PlacementRemark::Kind;

// The ranks with one problem, and the one line about it; the numbers in it are of the first of them.
struct Finding {
  Kind kind;
  const char* what;
  std::vector<int> ranks = {};
  std::string text = {};

  void add(const std::vector<int>& more, const std::string& about) {
    text = ranks.empty() ? about : text;
    ranks.insert(ranks.end(), more.begin(), more.end());
  }
};

std::string binding(int threads) {
  return str("bind each rank to cores of its own: srun --cpus-per-task=", threads,
             " --cpu-bind=cores, or mpirun --map-by slot:PE=", threads, " --bind-to core");
}

class Checks {
 public:
  explicit Checks(const std::vector<RankPlacement>& ranks) : ranks_(ranks) {
    for (size_t rank = 0; rank < ranks.size(); ++rank) {
      if (ranks[rank].cores.empty()) {
        unknown_.add({static_cast<int>(rank)}, str("no cores in /sys/devices/system of ", ranks[rank].host));
      }
    }
    for (const auto& [number, node] : crowds_by_node(ranks)) {
      check(node);
    }
  }

  std::vector<PlacementRemark> remarks() const {
    std::vector<PlacementRemark> out;
    for (const Finding* finding : {&unknown_, &turns_, &idle_, &own_cores_, &shared_, &full_, &sockets_, &memory_}) {
      if (!finding->ranks.empty()) {
        const char* const ranks = finding->ranks.size() == 1 ? " (rank " : " (ranks ";
        out.push_back({finding->kind, str(finding->what, ranks, number_list(finding->ranks), "): ", finding->text)});
      }
    }
    return out;
  }

 private:
  const RankPlacement& of(int rank) const { return ranks_[static_cast<size_t>(rank)]; }

  void check(const NodeCrowds& node) {
    CoreCrowd all;
    for (const auto& [lowest, crowd] : node) {
      all = {united(all.ranks, crowd.ranks), united(all.cores, crowd.cores)};
    }
    for (const auto& [lowest, crowd] : node) {
      check(crowd, all);
    }
    const RankPlacement& first = of(all.ranks.front());
    const auto node_cores = static_cast<size_t>(first.node_cores);
    const bool is_automatic =
        std::all_of(all.ranks.begin(), all.ranks.end(), [&](int rank) { return of(rank).is_automatic; });
    if (is_automatic && all.cores.size() + all.ranks.size() <= node_cores) {  // room for another thread of each
      idle_.add(all.ranks, str(node_cores - all.cores.size(), " of the ", node_cores, " cores of ", first.host,
                               " are not used, because ranks are bound to the others; unless they are another job's, ",
                               binding(static_cast<int>(node_cores / all.ranks.size()))));
    }
  }

  // `all`: ranks of the node.
  void check(const CoreCrowd& crowd, const CoreCrowd& all) {
    size_t threads = 0;  // that can run, each on a core
    for (const int rank : crowd.ranks) {
      threads += std::min(static_cast<size_t>(of(rank).threads), of(rank).cores.size());
      check_own_cores(rank);
    }
    if (threads > crowd.cores.size()) {
      describe(crowd, threads, all);
      return;
    }
    std::for_each(crowd.ranks.begin(), crowd.ranks.end(), [&](int rank) { check_sockets_and_memory(rank); });
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

  void describe(const CoreCrowd& crowd, size_t threads, const CoreCrowd& all) {
    const RankPlacement& first = of(crowd.ranks.front());
    const size_t cores = crowd.cores.size();
    const auto node_cores = static_cast<size_t>(first.node_cores);
    const std::string what = str(counted(threads, "thread"), " on ", counted(cores, "core"), " of ", first.host);
    if (cores < node_cores && all.ranks.size() * static_cast<size_t>(first.threads) <= node_cores) {
      const size_t used = all.cores.size();
      const std::string free =
          used < node_cores ? str(", while ", node_cores - used, " of its ", node_cores, " are free") : "";
      shared_.add(crowd.ranks, str(what, free, "; ", binding(first.threads)));
    } else if (crowd.ranks.size() > cores) {
      turns_.add(crowd.ranks, str(what, ", in turns; for speed start no more ranks than cores"));
    } else {
      full_.add(crowd.ranks, str(what, "; give --threads ", crowd.fair_share()));
    }
  }

  void check_sockets_and_memory(int rank) {
    const RankPlacement& place = of(rank);
    if (place.num_sockets > 1) {
      sockets_.add({rank}, str("they may run on ", place.num_sockets,
                               " of them; start at least one rank a socket, and ", binding(place.threads)));
    }
    if (place.has_far_memory) {
      memory_.add({rank}, str("it comes from NUMA node ", number_list(place.memories), ", and the cores are those of ",
                              number_list(place.near_memories),
                              "; give srun --mem-bind=local, or bind both to the same nodes (numactl)"));
    }
  }

  const std::vector<RankPlacement>& ranks_;
  Finding unknown_{Kind::kNote, "not checked"};
  Finding turns_{Kind::kNote, "more ranks than cores"};
  Finding idle_{Kind::kNote, "idle cores"};
  Finding own_cores_{Kind::kWarning, "more threads than cores in a rank"};
  Finding shared_{Kind::kWarning, "ranks on the same cores"};
  Finding full_{Kind::kWarning, "more threads than cores"};
  Finding sockets_{Kind::kWarning, "threads of a rank over several sockets"};
  Finding memory_{Kind::kWarning, "memory far from the cores"};
};

std::string to_text(const RankPlacement& place) {
  return Json::array({place.node, place.host, place.threads, place.is_automatic, place.node_cores,
                      number_list(place.cores), place.num_sockets, number_list(place.near_memories),
                      number_list(place.memories), place.has_far_memory})
      .dump();
}

RankPlacement from_text(const std::string& text) {
  const Json json = Json::parse(text);
  const auto numbers = [&](size_t index) { return parse_number_list(json[index].get<std::string>()); };
  return {json[0], json[1], json[2], json[3], json[4], numbers(5), json[6], numbers(7), numbers(8), json[9]};
}

std::vector<RankPlacement> from_texts(const std::vector<std::string>& texts) {
  std::vector<RankPlacement> ranks;
  std::transform(texts.begin(), texts.end(), std::back_inserter(ranks), from_text);
  return ranks;
}

// Threads that take turns on a processor wait for each other at the end of every loop. Somebody who tries things out
// may have some more than processors; thousands come to no end of a step.
constexpr int kMostOfProcessor = 8;
constexpr int kMostAnywhere = 64;

void check_number(int threads, const std::string& option) {
  const auto processors = static_cast<int>(allowed_processors().size());
  const int most = std::max(kMostAnywhere, kMostOfProcessor * processors);
  if (processors > 0 && threads > most) {
    throw Error(
        ErrorClass::kUsage,
        str(option, threads, "; allowed: 1 to ", most, " where a rank may run on ", counted(processors, "processor")),
        "give fewer --threads (or OMP_NUM_THREADS), or let the rank run on more: srun --cpus-per-task=N, mpirun "
        "--map-by slot:PE=N --bind-to core");
  }
}

// LibTorch waits for ever for a thread that the system does not start, and OpenMP ends the process. So as many as they
// will hold are first started on trial. LibTorch has a pool beside OpenMP's where it is given a number.
void try_threads(int threads, int pools, const std::string& option) {
  const int count = pools * (threads - 1);
  std::vector<std::thread> started;
  started.reserve(static_cast<size_t>(count));
  std::latch end_of_trial(1);
  std::string problem;
  try {
    while (static_cast<int>(started.size()) < count) {
      started.emplace_back([&end_of_trial] { end_of_trial.wait(); });
    }
  } catch (const std::exception& error) {
    problem = error.what();
  }
  end_of_trial.count_down();
  for (std::thread& thread : started) {
    thread.join();
  }
  if (!problem.empty()) {
    throw Error(ErrorClass::kUsage,
                str(option, threads, ", which takes ", count, " threads beside the first, but only ", started.size(),
                    " could be started: ", problem),
                "give fewer --threads, or raise the limits on threads (ulimit -u) and on memory (ulimit -v)");
  }
}

}  // namespace

NodeTopology load_topology(const std::string& xml) {
  hwloc_topology_t topology = nullptr;
  if (hwloc_topology_init(&topology) != 0) {
    return nullptr;
  }
  NodeTopology out(topology, hwloc_topology_destroy);
  hwloc_topology_set_cache_types_filter(topology, HWLOC_TYPE_FILTER_KEEP_NONE);
  hwloc_topology_set_flags(topology, HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED | HWLOC_TOPOLOGY_FLAG_IS_THISSYSTEM);
  if (xml.empty()) {
    // It would run on each processor in turn, and so wait for whoever computes there.
    hwloc_topology_set_components(topology, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, "x86");
  } else if (hwloc_topology_set_xmlbuffer(topology, xml.c_str(), static_cast<int>(xml.size() + 1)) != 0) {
    return nullptr;
  }
  return hwloc_topology_load(topology) == 0 ? out : nullptr;
}

std::string topology_xml(const NodeTopology& topology) {
  char* xml = nullptr;
  int length = 0;
  if (topology == nullptr || hwloc_topology_export_xmlbuffer(topology.get(), &xml, &length, 0) != 0) {
    return "";
  }
  std::string out(xml);
  hwloc_free_xmlbuffer(topology.get(), xml);
  return out;
}

RankPlacement place_rank(const NodeTopology& topology, const std::vector<int>& processors,
                         const std::vector<int>& memories, int threads) {
  RankPlacement place;
  place.threads = threads;
  place.memories = memories;
  if (topology == nullptr) {
    return place;
  }
  const Bitmap own = bitmap_of(processors);
  const hwloc_const_cpuset_t of_job = hwloc_topology_get_allowed_cpuset(topology.get());
  const int core = hwloc_get_type_or_below_depth(topology.get(), HWLOC_OBJ_CORE);  // processors, where it has no cores
  const int socket = hwloc_get_type_depth(topology.get(), HWLOC_OBJ_PACKAGE);
  place.cores = objects_of(topology, core, own.get());
  place.node_cores = static_cast<int>(objects_of(topology, core, of_job).size());
  place.num_sockets = static_cast<int>(objects_of(topology, socket, own.get()).size());
  place.near_memories = objects_of(topology, HWLOC_TYPE_DEPTH_NUMANODE, own.get());
  if (!memories.empty()) {
    const Bitmap others = bitmap_of({});  // than those that are near to these memories
    hwloc_cpuset_from_nodeset(topology.get(), others.get(), bitmap_of(memories).get());
    hwloc_bitmap_andnot(others.get(), own.get(), others.get());
    place.has_far_memory = !objects_of(topology, HWLOC_TYPE_DEPTH_NUMANODE, others.get()).empty();
  }
  return place;
}

std::vector<PlacementRemark> placement_remarks(const std::vector<RankPlacement>& ranks) {
  return Checks(ranks).remarks();
}

std::vector<int> shared_out_threads(const std::vector<RankPlacement>& ranks) {
  std::vector<int> threads(ranks.size(), 1);
  for (const auto& [number, node] : crowds_by_node(ranks)) {
    for (const auto& [lowest, crowd] : node) {
      for (const int rank : crowd.ranks) {
        const auto own = static_cast<int>(ranks[static_cast<size_t>(rank)].cores.size());
        threads[static_cast<size_t>(rank)] = std::min(own, crowd.fair_share());
      }
    }
  }
  return threads;
}

std::vector<RankPlacement> gather_placements(int threads, const comm::MpiGroup& node) {
  const NodeTopology topology = load_topology(node.broadcast(node.rank() == 0 ? topology_xml(load_topology()) : "", 0));
  RankPlacement own = place_rank(topology, allowed_processors(), own_memories(topology), threads);
  own.is_automatic = threads == 0;
  own.node = comm::process_place().node;
  own.host = comm::process_place().host;
  return from_texts(node.all_gather(to_text(own)));
}

void report_placement(const Placements& placements) {
  for (const PlacementRemark& remark : placement_remarks(placements.all)) {
    (remark.kind == Kind::kNote ? log_line : log_warning)("placement: " + remark.text);
  }
}

Placements set_threads(int threads, const comm::MpiGroup& world) {
  const bool is_by_openmp = threads == 0 && std::getenv("OMP_NUM_THREADS") != nullptr;  // for some ranks, perhaps
  const comm::MpiGroup node = world.split_by_node();
  const auto here = gather_placements(is_by_openmp ? at::get_num_threads() : threads, node);
  const auto place = static_cast<size_t>(node.rank());
  Placements placements{here[place], {}};
  if (placements.own.is_automatic) {
    placements.own.threads = shared_out_threads(here)[place];
  }
  const int own = placements.own.threads;
  placements.all = from_texts(world.gather(to_text(placements.own)));
  const std::string option = threads > 0 ? "--threads is " : "--threads is auto, here ";
  check_number(own, option);
  if (is_by_openmp) {
    try_threads(own, /*pools=*/1, option);
  } else {
    try_threads(own, /*pools=*/2, option);
    at::set_num_threads(own);
  }
  return placements;
}

}  // namespace vit_hybrid::train
