// Collectives of host tensors, node by node: the ranks of a node meet in memory that they share, and one of them speaks
// for all with the other nodes.
//
// So what the ranks of a node have leaves it once, as their sum: for S bytes over n nodes, a reduce-scatter or an
// all-gather sends S (n - 1) / n from each, an all-reduce twice as much, which is the least possible. An MPI all-reduce
// on one node moves a tenth of the bytes a second.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

#include "parallel/comm/communicator.h"
#include "parallel/comm/host_task.h"
#include "parallel/comm/make_communicator.h"
#include "parallel/comm/nodes/node_link.h"

namespace vit_hybrid::comm {

/// As those of the Communicator.
std::unique_ptr<HostTask> node_all_reduce(std::shared_ptr<NodeLink> link, const at::Tensor& tensor, ReduceOp op);
std::unique_ptr<HostTask> node_reduce_scatter(std::shared_ptr<NodeLink> link, const at::Tensor& output,
                                              const at::Tensor& input, ReduceOp op);
std::unique_ptr<HostTask> node_all_gather(std::shared_ptr<NodeLink> link, const at::Tensor& output,
                                          const at::Tensor& input);
std::unique_ptr<HostTask> node_broadcast(std::shared_ptr<NodeLink> link, const at::Tensor& tensor, int root);
std::unique_ptr<HostTask> node_barrier(std::shared_ptr<NodeLink> link);

/// Most bytes that a leader on `node` stages in a round of such a sum, with slots of so many bytes. Pure.
int64_t staging_bytes(const GroupNodes& nodes, int node, const LongestSum& sum, int64_t slot_bytes);

}  // namespace vit_hybrid::comm
