// NodeTopology: the cores of a node with their sockets and memories, as Linux describes them.
#pragma once

#include <map>
#include <string>
#include <vector>

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

}  // namespace vit_hybrid::train
