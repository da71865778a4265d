// NodeTask: a collective of the ranks of a group in rounds through the slots of their nodes.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "parallel/comm/host_task.h"
#include "parallel/comm/mpi/mpi_handle.h"
#include "parallel/comm/nodes/node_link.h"
#include "parallel/comm/operation.h"
#include "src/base/partition.h"

namespace vit_hybrid::comm {

/// A collective as a sequence of rounds (SharedSlots): put in, reduce, have the leader exchange with other nodes,
/// take out. Consecutive rounds overlap as far as there are slots, those of a task and of the next one too: each of the
/// four is done in the order of the rounds.
class NodeTask : public HostTask {
 public:
  bool advance() final;
  std::vector<int> awaits() const final;

 protected:
  /// `kind`, `bytes` and `detail` are compared between the ranks of a node in every round. `reduces`: there is a
  /// reduce_share(), for which all ranks wait.
  NodeTask(std::shared_ptr<NodeLink> link, Operation kind, int64_t bytes, int detail, int64_t num_rounds, bool reduces);

  virtual void put_in(int64_t round) = 0;
  virtual void reduce_share(int64_t /*round*/) {}
  /// Between nodes, by the leader of `round`: post the messages of this step (0, 1, ...), when those of the one before
  /// are complete; false, and none, after the last.
  virtual bool post(int64_t /*round*/, int /*step*/, MpiRequests& /*requests*/) { return false; }
  virtual void take_out(int64_t round) = 0;

  NodeLink& link() const { return *link_; }
  SharedSlots& slots() const { return link_->slots(); }
  bool leads_nodes() const { return link_->num_nodes() > 1; }
  int num_nodes() const { return link_->num_nodes(); }
  /// The ranks of the group that are on this node; number 0 among them is rank 0 of the slots.
  Range own_ranks() const { return link_->ranks(link_->node()); }

  /// Slot of rank `rank` of the node in this task's `round`, and that of its leader.
  char* slot(int rank, int64_t round) const { return slots().slot(rank, global(round)); }
  char* own_slot(int64_t round) const { return slot(slots().rank(), round); }
  char* leaders_slot(int64_t round) const { return slot(slots().leader(global(round)), round); }
  char* staging(int64_t round, int64_t bytes) const { return link_->staging(global(round), bytes); }

  /// Posts messages with the leaders of other nodes; those of all rounds that are in flight have different tags.
  void send(MpiRequests& requests, int64_t round, int step, int node, const void* data, int64_t bytes) const;
  void receive(MpiRequests& requests, int64_t round, int step, int node, void* data, int64_t bytes) const;

 private:
  struct Exchange {
    MpiRequests requests;
    int step = 0;
    bool complete = false;
  };
  static constexpr int kMostSteps = 4;

  uint64_t global(int64_t round) const { return first_round_ + static_cast<uint64_t>(round); }
  // Tag 0 is that of exchange().
  int tag(int64_t round, int step) const;
  Exchange& exchange_of(int64_t round) { return exchanges_[global(round) % SharedSlots::kNumSlots]; }
  const Exchange& exchange_of(int64_t round) const { return exchanges_[global(round) % SharedSlots::kNumSlots]; }
  // Whether the task before has not come through all of its rounds with that.
  bool comes_after(int64_t NodeTask::*done) const {
    return before_ != nullptr && before_->*done < before_->num_rounds_;
  }
  bool is_leader(int64_t round) const { return slots().leader(global(round)) == slots().rank(); }

  // Each: whether something was done.
  bool enter_rounds();
  bool reduce_rounds();
  bool lead_rounds();  // this rank's turns among the rounds, as many as are in flight
  bool leave_rounds();
  bool exchange_round(int64_t round);
  void check_signatures(int64_t round) const;

  std::shared_ptr<NodeLink> link_;
  uint64_t signature_;
  int64_t num_rounds_;
  bool reduces_;
  const NodeTask* before_ = nullptr;  // while it is advanced; null: the first
  bool begun_ = false;
  uint64_t first_round_ = 0;
  int64_t entered_ = 0;
  int64_t reduced_ = 0;
  int64_t led_ = 0;  // all before it that this rank leads are exchanged
  int64_t left_ = 0;
  std::vector<Exchange> exchanges_;  // of the rounds in flight, by slot; none on one node
};

}  // namespace vit_hybrid::comm
