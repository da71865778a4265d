// NodeLink: the ranks of a group by node, the memory that those of a node share (SharedSegment), and who speaks with
// other nodes.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "parallel/comm/host_task.h"
#include "parallel/comm/make_communicator.h"
#include "parallel/comm/mpi/mpi_group.h"
#include "parallel/comm/mpi/mpi_handle.h"
#include "parallel/comm/mpi/rank_order.h"
#include "src/base/partition.h"

namespace vit_hybrid::comm {

/// One region of equal size for each rank of a group whose processes share memory; regions are
/// zeroed and aligned to cache lines. Not part of ATen's memory, but where the group has one rank, whose memory nobody
/// shares.
class SharedSegment {
 public:
  /// Collective over `node`, which must lie on one node.
  SharedSegment(const MpiGroup& node, int64_t bytes_per_rank);
  /// Collective, except while an exception unwinds or after MpiSession::finalize().
  ~SharedSegment();
  SharedSegment(SharedSegment&&) noexcept;
  SharedSegment& operator=(SharedSegment&&) = delete;

  /// Of that, bytes of ATen's memory on a node of so many ranks.
  static int64_t own_bytes(int num_ranks, int64_t bytes_per_rank);

  /// Region of `rank`, as mapped in this process.
  std::byte* region(int rank) const;

 private:
  struct Window;
  std::unique_ptr<Window> window_;
};

/// Bytes free where MPI libraries keep shared memory (/dev/shm); the largest number if not known.
int64_t free_shared_memory();

/// Each rank has kNumSlots slots and four counters. In round n every rank puts a block into a slot n % kNumSlots, its
/// own or its place in another one (entered), may reduce its share of all blocks there (reduced), the round's leader
/// may exchange what came of it with other nodes (led), and every rank takes what it needs from the slots (left). Slots
/// are free again when all ranks have left the round that used them. Counters only grow, each is written by its own
/// rank, and nothing here blocks.
class SharedSlots {
 public:
  static constexpr int kNumSlots = 4;

  /// Slots of `slot_bytes` (a multiple of 64, at least 8 for each rank). `past_caches`: of TransportOptions. Collective
  /// over `group`, which must lie on one node.
  SharedSlots(const MpiGroup& group, int64_t slot_bytes, bool past_caches);

  /// Bytes of shared memory of one rank.
  static int64_t bytes_per_rank(int64_t slot_bytes);

  int rank() const { return rank_; }
  int size() const { return size_; }
  int64_t slot_bytes() const { return slot_bytes_; }

  /// First round that no operation has used yet; operations take theirs in the same order everywhere.
  uint64_t next_round() const { return next_round_; }
  void take_rounds(int64_t rounds) { next_round_ += static_cast<uint64_t>(rounds); }

  /// Slot of `rank` in `round`.
  char* slot(int rank, uint64_t round) const;

  /// Copies to where other ranks will read it, in any slot; before enter() or mark_reduced().
  void put(char* to, const char* from, int64_t bytes) const;

  /// True if the slots of `round` may be filled.
  bool may_enter(uint64_t round) const;
  /// The own block is in its slot. `signature` says for which operation; it must be the same on all ranks.
  void enter(uint64_t round, uint64_t signature);
  bool all_entered(uint64_t round) const;
  void mark_reduced(uint64_t round);
  bool all_reduced(uint64_t round) const;
  /// The rank that speaks for the others in `round`: they take turns.
  int leader(uint64_t round) const { return leader(round, size_); }
  /// The same of another node, which has so many ranks.
  static int leader(uint64_t round, int num_ranks) {
    return static_cast<int>(round % static_cast<uint64_t>(num_ranks));
  }
  /// Of the rounds in flight, so many have the same leader at most.
  static int most_led(int num_ranks) { return kNumSlots / std::gcd(kNumSlots, num_ranks); }
  /// By the leader of `round`, and of its earlier ones.
  void mark_led(uint64_t round);
  bool is_led(uint64_t round) const;
  /// The slots of `round` are no longer needed here.
  void leave(uint64_t round);

  /// Signature of `rank` in `round`, after it has entered.
  uint64_t signature(int rank, uint64_t round) const;
  /// Ranks that keep `round` from being led or left: that have not entered it or, if all have and they must `reduce`,
  /// not reduced their share; else those that keep its slots from being used again.
  std::vector<int> missing(uint64_t round, bool reduce) const;

 private:
  struct Control;
  using Counter = std::atomic<uint64_t> Control::*;
  bool all_at_least(Counter counter, uint64_t value) const;
  std::vector<int> below(Counter counter, uint64_t value) const;

  int rank_;
  int size_;
  int64_t slot_bytes_;
  bool past_caches_;
  SharedSegment segment_;
  std::vector<Control*> controls_;
  uint64_t next_round_ = 0;
};

/// In which steps the nodes of a group exchange the parts of a sum: all with all in one; or, where they are many, first
/// with those of the own run of consecutive nodes, then with those of the same number in the other runs. Bytes are the
/// same, messages run_size + num_runs - 2 of a node instead of n - 1. So are the bits of a sum by the balanced tree:
/// nodes are halved evenly into runs, which are subtrees. A gather goes through the steps backwards.
///
/// A part of the data is each node's in the end; parts lie in the order of their places, so that what a node sends in a
/// step is one range.
class NodeSteps {
 public:
  /// `most_in_one`: so many nodes exchange in one step, and more in two, if they can be halved evenly.
  NodeSteps(int num_nodes, int most_in_one);

  int count() const { return num_runs_ == 1 ? 1 : 2; }
  /// That a node sends in all steps.
  int messages() const { return run_size_ + num_runs_ - 2; }
  /// The nodes that exchange with `node` in a step, itself among them, in the order in which they are added.
  std::vector<int> peers(int step, int node) const;
  /// Places of the parts that `node` has the sums of after a step.
  Range places(int step, int node) const;
  /// Of the own part in the end.
  int place(int node) const { return node % run_size_ * num_runs_ + node / run_size_; }
  int node_at(int place) const { return place % num_runs_ * run_size_ + place / num_runs_; }

 private:
  int num_runs_ = 1;
  int run_size_;
};

/// The tree of reduce_in_blocks() over nodes, of which `node` adds the values of `children` to its own, in this order,
/// and gives the sum to `parent` (-1: it is the root, 0).
struct NodeTree {
  NodeTree(int node, int num_nodes);

  std::vector<int> children;
  int parent = -1;
};

/// Which ranks of a group are on which node, and how nodes exchange. A pure value.
class GroupNodes {
 public:
  /// `nodes`: how many ranks each node has, consecutive ones. `blocks`: of every sum; if there are several nodes, each
  /// is a block, or has one rank. `most_in_one_step`: of NodeSteps, where sums over nodes are the balanced tree.
  GroupNodes(const std::vector<int>& nodes, const SumBlocks& blocks, int most_in_one_step);

  int num_ranks() const { return first_.back(); }
  int num_nodes() const { return static_cast<int>(first_.size()) - 1; }
  int node_of(int rank) const;
  /// Ranks of the group that are on `node`.
  Range ranks(int node) const { return {first_[static_cast<size_t>(node)], first_[static_cast<size_t>(node) + 1]}; }
  /// The rank of the group that speaks for `node` in `round`; they take turns.
  int leader(int node, uint64_t round) const;
  /// Of a sum over the nodes.
  const SumBlocks& blocks_of_nodes() const { return blocks_of_nodes_; }
  /// Whether a sum over nodes is the balanced tree of them.
  bool adds_nodes_by_tree() const;
  const NodeSteps& steps() const { return steps_; }
  /// Ranks of the group whose nodes' parts lie before `place`; at the end, all.
  int ranks_before(int place) const { return before_[static_cast<size_t>(place)]; }
  /// The number of the part of `rank` in the order of places.
  int place_of_rank(int rank) const;

 private:
  std::vector<int> first_;  // rank of each node, and the size of the group
  SumBlocks blocks_of_nodes_;
  NodeSteps steps_{1, 1};
  std::vector<int> before_;  // ranks before each place, and all
};

/// A tensor of every rank of a node, each as mapped here.
class SharedTensor {
 public:
  /// Collective over `node`. Throws on every rank where one cannot map what another has.
  SharedTensor(const MpiGroup& node, const at::Tensor& tensor);

  /// Whether `tensor` is a view of the own one, whose memory there is no other while this lives.
  bool is_of(const at::Tensor& tensor) const {
    return tensor.storage().unsafeGetStorageImpl() == storage_._unsafe_get_target();
  }
  bool is_freed() const { return storage_.use_count() == 0; }
  /// Where `rank` of the node has what lies at `own` in this rank's.
  char* at(int rank, const char* own) const { return ranks_[static_cast<size_t>(rank)].get() + (own - own_); }

 private:
  c10::weak_intrusive_ptr<c10::StorageImpl> storage_;
  char* own_;
  std::vector<std::shared_ptr<char>> ranks_;
};

/// What the tasks of one group share: its nodes, and the slots of the own one.
class NodeLink : public GroupNodes {
 public:
  /// `nodes` and `blocks` of `group`: GroupNodes. Slots are of options.slot_bytes, whatever the nodes. Collective over
  /// `group`.
  NodeLink(MpiGroup group, const std::vector<int>& nodes, const SumBlocks& blocks, const TransportOptions& options);

  /// From now on what is sent to ranks of other machines counts for the axis. `machines`: how many ranks each has, also
  /// where a node is one of them.
  void count_for(const std::string& axis, const std::vector<int>& machines);
  void count_sent(int rank, int64_t bytes) const;

  const MpiGroup& group() const { return group_; }
  MpiRequests requests() const;
  /// Number of the own node.
  int node() const { return node_; }
  /// Of a sum over the ranks of the own node.
  const SumBlocks& blocks_in_node() const { return blocks_in_node_; }

  /// From now on tasks of views of `tensor`, if it is of shareable_zeros(), work on what each rank of the node has of
  /// it. Throws as SharedTensor does. Collective over the group.
  void share(const at::Tensor& tensor);
  /// What `tensor` is a view of; null: of nothing that is shared.
  std::shared_ptr<const SharedTensor> shared(const at::Tensor& tensor) const;

  SharedSlots& slots() { return slots_; }
  TaskQueue& queue() { return queue_; }  ///< in whose order tasks use the rounds
  /// Memory of this process, at least so many bytes, for messages of `round`, of which it is the leader.
  char* staging(uint64_t round, int64_t bytes);

 private:
  MpiGroup group_;
  int node_;
  std::string axis_;
  std::vector<int> first_of_machine_;  // rank of each; empty: nothing is counted
  SumBlocks blocks_in_node_;
  int64_t max_message_bytes_;
  std::vector<std::shared_ptr<const SharedTensor>> shared_;
  SharedSlots slots_;
  TaskQueue queue_;
  std::array<at::Tensor, SharedSlots::kNumSlots> staging_;
};

}  // namespace vit_hybrid::comm
