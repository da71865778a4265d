// NodeLink: the ranks of a group by node, the memory in which those of a node meet, and who speaks with other nodes.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "parallel/comm/host_task.h"
#include "parallel/comm/make_communicator.h"
#include "parallel/comm/mpi/mpi_group.h"
#include "parallel/comm/mpi/mpi_requests.h"
#include "parallel/comm/mpi/rank_order.h"
#include "parallel/comm/nodes/shared_segment.h"
#include "src/base/partition.h"

namespace vit_hybrid::comm {

/// What the tasks of one group share: which of its ranks are on which node, and the slots of the own node.
class NodeLink {
 public:
  /// `nodes`: how many ranks each node has, in the order of `group`, whose ranks are consecutive on every node.
  /// `blocks`: of every sum. If there are several nodes, each is a block, or has one rank. Collective over `group`.
  NodeLink(MpiGroup group, const std::vector<int>& nodes, const SumBlocks& blocks, const TransportOptions& options);

  /// From now on what is sent to ranks of other machines counts for the axis. `machines`: how many ranks each has, also
  /// where a node is one of them.
  void count_for(const std::string& axis, const std::vector<int>& machines);
  void count_sent(int rank, int64_t bytes) const;

  /// Size of a slot for so many nodes: with more of them it is larger, up to eight times, because each gets a part of
  /// it in a message.
  static int64_t slot_bytes(const TransportOptions& options, size_t num_nodes);

  const MpiGroup& group() const { return group_; }
  MpiRequests requests() const;
  int num_nodes() const { return static_cast<int>(first_.size()) - 1; }
  /// Number of the own node.
  int node() const { return node_; }
  int node_of(int rank) const;
  /// Ranks of the group that are on `node`.
  Range ranks(int node) const { return {first_[static_cast<size_t>(node)], first_[static_cast<size_t>(node) + 1]}; }
  /// The rank of the group that speaks for `node` in `round`; they take turns.
  int leader(int node, uint64_t round) const;
  /// Of a sum over the ranks of the own node, and over the nodes.
  const SumBlocks& blocks_in_node() const { return blocks_in_node_; }
  const SumBlocks& blocks_of_nodes() const { return blocks_of_nodes_; }
  /// Whether a sum over nodes is the balanced tree of them.
  bool adds_nodes_by_tree() const;

  SharedSlots& slots() { return slots_; }
  TaskQueue& queue() { return queue_; }  ///< tasks use the rounds one after the other
  /// Memory of this process, at least so many bytes, for messages of `round`, of which it is the leader.
  char* staging(uint64_t round, int64_t bytes);

 private:
  MpiGroup group_;
  std::vector<int> first_;  // rank of each node, and the size of the group
  int node_;
  std::string axis_;
  std::vector<int> first_of_machine_;  // rank of each; empty: nothing is counted
  SumBlocks blocks_in_node_;
  SumBlocks blocks_of_nodes_;
  int64_t max_message_bytes_;
  SharedSlots slots_;
  TaskQueue queue_;
  std::array<at::Tensor, SharedSlots::kNumSlots> staging_;
};

}  // namespace vit_hybrid::comm
