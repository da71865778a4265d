// Checks of the arguments of every operation, one text for all back ends.
#pragma once

#include <vector>

#include "parallel/comm/communicator.h"
#include "parallel/comm/operation.h"

namespace vit_hybrid::comm {

/// Each throws Error(kInternal), naming the operation, axis, value and what is allowed.
void check_all_reduce(const Communicator& group, const at::Tensor& tensor, ReduceOp op);
void check_reduce_scatter(const Communicator& group, const at::Tensor& output, const at::Tensor& input, ReduceOp op);
void check_all_gather(const Communicator& group, const at::Tensor& output, const at::Tensor& input);
void check_broadcast(const Communicator& group, const at::Tensor& tensor, int root);
void check_exchange(const Communicator& group, const std::vector<Transfer>& transfers);

}  // namespace vit_hybrid::comm
