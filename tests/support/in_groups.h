// One piece of work done by all ranks, by rank 0 alone and by the others: what must not depend on their number.
#pragma once

#include <fstream>
#include <iterator>
#include <string>

#include "parallel/comm/mpi/mpi_group.h"

namespace vit_hybrid::testing {

/// Calls `work(group, name)` with the whole group ("all"), then with rank 0 alone ("one") while the others do it
/// together ("rest", if there are any). Collective over `group`.
template <class Work>
void in_groups(const comm::MpiGroup& group, const Work& work) {
  work(group, std::string("all"));
  const comm::MpiGroup part = group.split(group.rank() == 0 ? 0 : 1);
  work(part, std::string(group.rank() == 0 ? "one" : "rest"));
  group.barrier();
}

/// All bytes of a file; empty without it.
inline std::string file_bytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace vit_hybrid::testing
