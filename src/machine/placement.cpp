// Files of /sys and /proc, the calls that say what this process may use, and what is wrong with that.
#include "src/machine/placement.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <fstream>
#include <iterator>
#include <map>
#include <numeric>
#include <set>
#include <sstream>
#include <unordered_map>

#include "parallel/comm/failure.h"
#include "src/base/host.h"
#include "src/base/json.h"
#include "src/base/log.h"
#include "src/base/text.h"

namespace vit_hybrid::train {

namespace {

// The first line; empty where there is no such file.
std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::vector<int> sorted(const std::set<int>& numbers) {
  return {numbers.begin(), numbers.end()};
}

std::vector<int> common(const std::vector<int>& a, const std::vector<int>& b) {
  std::vector<int> out;
  std::set_intersection(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(out));
  return out;
}

// What follows "Mems_allowed_list:" and the like.
std::string own_status(const std::string& key) {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(key)) {
      const size_t value = line.find_first_not_of(" \t", key.size());
      return value == std::string::npos ? "" : line.substr(value);
    }
  }
  return "";
}

// Of the policies that name nodes; empty for those that do not, and where the call is not permitted (in containers).
std::vector<int> policy_memories() {
  constexpr size_t kBits = 8 * sizeof(unsigned long);
  std::array<unsigned long, 4096 / kBits> mask{};
  int mode = 0;
  if (syscall(SYS_get_mempolicy, &mode, mask.data(), mask.size() * kBits, nullptr, 0UL) != 0) {
    return {};
  }
  std::vector<int> nodes;
  for (size_t node = 0; node < mask.size() * kBits; ++node) {
    if ((mask[node / kBits] >> (node % kBits) & 1UL) != 0) {
      nodes.push_back(static_cast<int>(node));
    }
  }
  return nodes;
}

}  // namespace

std::vector<int> parse_number_list(const std::string& text) {
  std::vector<int> numbers;
  std::istringstream parts(text);
  for (std::string part; std::getline(parts, part, ',');) {
    const char* const end = part.data() + part.size();
    int first = 0;
    auto parsed = std::from_chars(part.data(), end, first);
    if (parsed.ec != std::errc()) {
      continue;
    }
    int last = first;
    if (parsed.ptr != end && *parsed.ptr == '-') {
      std::from_chars(parsed.ptr + 1, end, last);
    }
    for (int number = first; number <= last; ++number) {
      numbers.push_back(number);
    }
  }
  std::sort(numbers.begin(), numbers.end());
  return numbers;
}

std::string number_list(const std::vector<int>& numbers) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin < numbers.size();) {
    size_t end = begin + 1;
    while (end < numbers.size() && numbers[end] == numbers[end - 1] + 1) {
      ++end;
    }
    const bool is_one = end == begin + 1;
    parts.push_back(is_one ? str(numbers[begin]) : str(numbers[begin], "-", numbers[end - 1]));
    begin = end;
  }
  return join(parts, ",");
}

std::vector<int> NodeTopology::all_processors() const {
  std::vector<int> numbers;
  for (const auto& [number, processor] : processors) {
    numbers.push_back(number);
  }
  return numbers;
}

std::vector<int> NodeTopology::cores_of(const std::vector<int>& numbers) const {
  std::set<int> cores;
  for (const int number : numbers) {
    if (const auto found = processors.find(number); found != processors.end()) {
      cores.insert(found->second.core);
    }
  }
  return sorted(cores);
}

NodeTopology read_topology(const std::string& root) {
  NodeTopology topology;
  for (const int number : parse_number_list(first_line(root + "/cpu/online"))) {
    if (topology.processors.contains(number)) {
      continue;  // a hardware thread of a core that is known
    }
    const std::string folder = str(root, "/cpu/cpu", number, "/topology/");
    auto siblings = parse_number_list(first_line(folder + "thread_siblings_list"));
    siblings = siblings.empty() ? std::vector<int>{number} : siblings;
    const auto socket = parse_number_list(first_line(folder + "physical_package_id"));
    for (const int sibling : siblings) {
      topology.processors[sibling] = {siblings.front(), socket.empty() ? 0 : socket.front(), 0};
    }
  }
  for (const int node : parse_number_list(first_line(root + "/node/online"))) {
    for (const int number : parse_number_list(first_line(str(root, "/node/node", node, "/cpulist")))) {
      if (const auto found = topology.processors.find(number); found != topology.processors.end()) {
        found->second.memory = node;
      }
    }
  }
  topology.memories = parse_number_list(first_line(root + "/node/has_memory"));
  return topology;
}

std::vector<int> job_processors(const NodeTopology& topology) {
  const auto all = topology.all_processors();
  std::ifstream groups("/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    const size_t colon = line.rfind(':');
    const std::string path = colon == std::string::npos ? "" : line.substr(colon + 1);
    const bool is_first_version = line.find(":cpuset:") != std::string::npos;
    const std::string file = is_first_version ? "/sys/fs/cgroup/cpuset" + path + "/cpuset.cpus"
                                              : "/sys/fs/cgroup" + path + "/cpuset.cpus.effective";
    const auto of_job = parse_number_list(first_line(file));
    if (!of_job.empty()) {
      return common(all, of_job);
    }
  }
  return all;
}

std::vector<int> allowed_memories() {
  const auto confined = parse_number_list(own_status("Mems_allowed_list:"));
  const auto chosen = policy_memories();
  return chosen.empty() ? confined : common(confined, chosen);
}

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

namespace {

RankPlacement place_of_this_rank(int threads) {
  const NodeTopology topology = read_topology();
  RankPlacement place = place_rank(topology, allowed_processors(), allowed_memories(), threads);
  place.is_automatic = threads == 0;
  place.node = comm::process_place().node;
  place.host = comm::process_place().host;
  place.node_cores = static_cast<int>(topology.cores_of(job_processors(topology)).size());
  return place;
}

std::string to_text(const RankPlacement& place) {
  return Json::array({place.node, place.host, place.threads, place.is_automatic, place.node_cores,
                      number_list(place.cores), number_list(place.sockets), number_list(place.near_memories),
                      number_list(place.memories)})
      .dump();
}

RankPlacement from_text(const std::string& text) {
  const Json json = Json::parse(text);
  const auto numbers = [&](size_t index) { return parse_number_list(json[index].get<std::string>()); };
  return {json[0], json[1], json[2], json[3], json[4], numbers(5), numbers(6), numbers(7), numbers(8)};
}

}  // namespace

std::vector<RankPlacement> gather_placements(int threads, const comm::MpiGroup& world) {
  std::vector<RankPlacement> ranks;
  for (const std::string& text : world.all_gather(to_text(place_of_this_rank(threads)))) {
    ranks.push_back(from_text(text));
  }
  return ranks;
}

void report_placement(const std::vector<RankPlacement>& ranks) {
  for (const PlacementRemark& remark : placement_remarks(ranks)) {
    const std::string line = "placement: " + remark.text;
    if (remark.kind == PlacementRemark::Kind::kNote) {
      log_line(line);
    } else {
      log_warning(line);
    }
  }
}

}  // namespace vit_hybrid::train
