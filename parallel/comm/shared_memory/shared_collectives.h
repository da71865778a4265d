// Collectives of the ranks of a node by way of memory that they share.
//
// Used where all ranks of a group are on one node: an MPI all-reduce there moves a tenth of the bytes a second.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>

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

/// A collective as a sequence of rounds (see SharedSlots): put in, reduce, take out. Consecutive rounds
/// overlap as far as there are slots.
class SharedTask : public HostTask {
 public:
  bool advance() final;
  std::vector<int> awaits() const final;

 protected:
  enum class Phases { kTwo, kThree };  // without and with reduce_share()

  /// `kind` and `bytes` (and the reduction) are compared between the ranks in every round.
  SharedTask(std::shared_ptr<SharedLink> link, Operation kind, int64_t bytes, int detail, int64_t num_rounds,
             Phases phases);

  virtual void put_in(int64_t round, char* slot) = 0;
  virtual void reduce_share(int64_t /*round*/) {}
  virtual void take_out(int64_t round) = 0;

  const SharedSlots& slots() const { return link_->slots; }
  /// Slot of `rank` in this task's `round`.
  char* slot(int rank, int64_t round) const { return slots().slot(rank, global(round)); }

 private:
  uint64_t global(int64_t round) const { return first_round_ + static_cast<uint64_t>(round); }
  bool enter_rounds();
  bool reduce_rounds();
  bool leave_rounds();
  void check_signatures(int64_t round) const;

  std::shared_ptr<SharedLink> link_;
  uint64_t signature_;
  int64_t num_rounds_;
  Phases phases_;
  bool begun_ = false;
  uint64_t first_round_ = 0;
  int64_t entered_ = 0;
  int64_t reduced_ = 0;
  int64_t left_ = 0;
};

std::unique_ptr<HostTask> shared_all_reduce(std::shared_ptr<SharedLink> link, const at::Tensor& tensor, ReduceOp op);
std::unique_ptr<HostTask> shared_reduce_scatter(std::shared_ptr<SharedLink> link, const at::Tensor& output,
                                                const at::Tensor& input, ReduceOp op);
std::unique_ptr<HostTask> shared_all_gather(std::shared_ptr<SharedLink> link, const at::Tensor& output,
                                            const at::Tensor& input);
std::unique_ptr<HostTask> shared_broadcast(std::shared_ptr<SharedLink> link, const at::Tensor& tensor, int root);
std::unique_ptr<HostTask> shared_barrier(std::shared_ptr<SharedLink> link);

}  // namespace vit_hybrid::comm
