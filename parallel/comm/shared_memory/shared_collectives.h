// Collectives of the ranks of a node by way of memory that they share.
//
// Used where all ranks of a group are on one node: an MPI all-reduce there moves a tenth of the bytes a second.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

#include "parallel/comm/host_task.h"
#include "parallel/comm/shared_memory/shared_segment.h"

namespace vit_hybrid::comm {

/// What the tasks of one group share.
struct SharedLink {
  SharedLink(const MpiGroup& group, int64_t slot_bytes) : slots(group, slot_bytes), watched(group.watched()) {}

  SharedSlots slots;
  std::shared_ptr<WatchedGroup> watched;
  TaskQueue queue;  ///< tasks use the rounds one after the other
};

std::unique_ptr<HostTask> shared_all_reduce(std::shared_ptr<SharedLink> link, const at::Tensor& tensor, ReduceOp op);
std::unique_ptr<HostTask> shared_reduce_scatter(std::shared_ptr<SharedLink> link, const at::Tensor& output,
                                                const at::Tensor& input, ReduceOp op);
std::unique_ptr<HostTask> shared_all_gather(std::shared_ptr<SharedLink> link, const at::Tensor& output,
                                            const at::Tensor& input);
std::unique_ptr<HostTask> shared_broadcast(std::shared_ptr<SharedLink> link, const at::Tensor& tensor, int root);
std::unique_ptr<HostTask> shared_barrier(std::shared_ptr<SharedLink> link);

}  // namespace vit_hybrid::comm
