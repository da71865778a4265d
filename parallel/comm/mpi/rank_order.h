// Reduction of several ranks' values: in rank order inside of a block, by a balanced tree over blocks; the one
// arithmetic of all host back ends.
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

/// How the ranks of a group are cut for a sum: the sizes of runs of consecutive ranks.
using SumBlocks = std::vector<int>;

/// The values of each block of sources in rank order, then the blocks' by a balanced tree: a range of blocks is halved
/// as Partition halves it, and the value of its second half is added to that of the first. Each of these values is
/// rounded to `type`: one block has the bits of reduce_in_rank_order(). `blocks` adds up to the number of sources.
void reduce_in_blocks(c10::ScalarType type, ReduceOp op, const std::vector<const void*>& sources,
                      const SumBlocks& blocks, void* result, int64_t count);

}  // namespace vit_hybrid::comm
