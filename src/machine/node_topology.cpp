// Files of /sys and /proc, and the calls that say what this process may use.
#include "src/machine/node_topology.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <fstream>
#include <set>
#include <sstream>

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

}  // namespace vit_hybrid::train
