// The threads that a rank computes with.
#pragma once

#include "parallel/comm/mpi_group.h"

namespace vit_hybrid::train {

/// Sets them for this process: `threads`, else OMP_NUM_THREADS, else its share of the cores that it may run on
/// (shared_out_threads()). Error(kUsage) where the system does not start so many. Collective over `world`.
void set_threads(int threads, const comm::MpiGroup& world);

/// Whether that share is what set_threads(threads, ...) takes.
bool threads_are_shared_out(int threads);

}  // namespace vit_hybrid::train
