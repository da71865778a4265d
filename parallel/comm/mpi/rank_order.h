// Reduction of several ranks' values in rank order, the one arithmetic of all host back ends.
//
// By own messages or shared memory in place of MPI_Allreduce: the bits depend neither on the MPI library nor on the
// path, and every rank gets the same.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <vector>

#include "parallel/comm/communicator.h"

namespace vit_hybrid::comm {

/// result[i] = ((sources[0][i] op sources[1][i]) op sources[2][i]) ... for i < count. Half types are
/// accumulated in float32 and rounded once, integers wrap. `result` may be one of the sources.
void reduce_in_rank_order(c10::ScalarType type, ReduceOp op, const std::vector<const void*>& sources, void* result,
                          int64_t count);

}  // namespace vit_hybrid::comm
