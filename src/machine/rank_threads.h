// The threads that a rank computes with.
#pragma once

#include <vector>

#include "parallel/comm/mpi/mpi_group.h"
#include "src/machine/placement.h"

namespace vit_hybrid::train {

/// Sets them for this process: `threads`, else OMP_NUM_THREADS, else its share of the cores that it may run on
/// (shared_out_threads()). Where all ranks run, in rank order, with the threads of each. Error(kUsage) for far
/// more than there are processors for, and where the system does not start so many. Collective over `world`.
std::vector<RankPlacement> set_threads(int threads, const comm::MpiGroup& world);

}  // namespace vit_hybrid::train
