// The sum over the tensor axis that stands at both borders of a tensor-parallel region.
#pragma once

#include <ATen/core/Tensor.h>

#include "parallel/comm/communicator.h"

namespace vit_hybrid::tensor {

/// Starts the sum of `partial` (contiguous) over the group, in place: forward where a region ends (Megatron-LM's g),
/// backward where it begins (its f). A group of one costs nothing. Collective over tensor.
comm::Work start_region_sum(const at::Tensor& partial, comm::Communicator& group);

}  // namespace vit_hybrid::tensor
