// RegionSum: a sum over the tensor axis, started where a tensor-parallel region ends or begins.
#pragma once

#include <ATen/core/Tensor.h>

#include "parallel/comm/communicator.h"

namespace vit_hybrid::tensor {

/// Starts the sum of `partial` (contiguous) over the group, in place: forward where a region ends (Megatron-LM's g),
/// backward where it begins (its f). A group of one costs nothing. Collective over tensor.
comm::Work start_region_sum(const at::Tensor& partial, comm::Communicator& group);

/// The output of a RowParallelLinear while its sum is on its way: what is computed meanwhile hides it.
struct RegionSum {
  at::Tensor y = {};     ///< on the graph; its values are there after finish(), and nobody may touch them before
  comm::Work work = {};  ///< the sum over the group
  at::Tensor bias = {};  ///< to be added to the sum; undefined: none, or done

  bool defined() const { return y.defined(); }
  /// Waits for the sum; the whole output. Once.
  at::Tensor finish() &&;
};

}  // namespace vit_hybrid::tensor
