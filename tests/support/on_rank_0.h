// on_rank_0(): what one rank prepares for all, for instance the files of a test.
#pragma once

#include "parallel/comm/mpi/mpi_group.h"

namespace vit_hybrid::testing {

/// Calls `function()` on rank 0; the others wait for it. Collective over `group`.
template <class Function>
void on_rank_0(const comm::MpiGroup& group, Function&& function) {
  if (group.rank() == 0) {
    function();
  }
  group.barrier();
}

}  // namespace vit_hybrid::testing
