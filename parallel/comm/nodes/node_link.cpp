// The ranks of a node as slots, and the blocks of sums on a node and over nodes.
#include "parallel/comm/nodes/node_link.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <iterator>
#include <numeric>
#include <utility>

#include "parallel/comm/mpi/mpi_handle.h"
#include "parallel/comm/statistics.h"
#include "src/base/error.h"
#include "src/base/memory_tracker.h"
#include "src/base/text.h"

namespace vit_hybrid::comm {

namespace {

// Of the ranks of `group` that are on its node of number `node`.
SharedSlots slots_of_node(const MpiGroup& group, int num_nodes, int node, int64_t slot_bytes) {
  return num_nodes == 1 ? SharedSlots(group, slot_bytes) : SharedSlots(group.split(node), slot_bytes);
}

std::vector<int> first_ranks(const std::vector<int>& nodes) {
  std::vector<int> first = {0};
  std::partial_sum(nodes.begin(), nodes.end(), std::back_inserter(first));
  return first;
}

int node_of_rank(const std::vector<int>& first, int rank) {
  return static_cast<int>(std::upper_bound(first.begin(), first.end(), rank) - first.begin()) - 1;
}

}  // namespace

NodeLink::NodeLink(MpiGroup group, const std::vector<int>& nodes, const SumBlocks& blocks,
                   const TransportOptions& options)
    : group_(std::move(group)),
      first_(first_ranks(nodes)),
      node_(node_of_rank(first_, group_.rank())),
      max_message_bytes_(options.max_message_bytes),
      slots_(slots_of_node(group_, num_nodes(), node_, slot_bytes(options, nodes.size()))) {
  VH_ASSERT(first_.back() == group_.size(), str("nodes of ", first_.back(), " ranks for ", group_.size()));
  if (num_nodes() == 1) {
    blocks_in_node_ = blocks;
    blocks_of_nodes_ = {1};
  } else if (nodes == blocks) {
    blocks_in_node_ = {nodes[static_cast<size_t>(node_)]};
    blocks_of_nodes_.assign(nodes.size(), 1);
  } else {
    VH_ASSERT(num_nodes() == group_.size(), "nodes that are not the blocks of a sum");
    blocks_in_node_ = {1};
    blocks_of_nodes_ = blocks;
  }
  // An element of every rank's part fits into a slot.
  VH_ASSERT(slots_.slot_bytes() >= 8 * group_.size(), str("slots of ", slots_.slot_bytes(), " bytes"));
}

void NodeLink::count_for(const std::string& axis, const std::vector<int>& machines) {
  axis_ = axis;
  first_of_machine_ = first_ranks(machines);
}

void NodeLink::count_sent(int rank, int64_t bytes) const {
  const auto machine = [&](int of) { return node_of_rank(first_of_machine_, of); };
  if (machine(rank) != machine(group_.rank())) count_bytes_between_nodes(axis_, bytes);
}

int64_t NodeLink::slot_bytes(const TransportOptions& options, size_t num_nodes) {
  constexpr size_t kMost = 8;
  return options.slot_bytes * static_cast<int64_t>(std::clamp((num_nodes + 1) / 2, size_t{1}, kMost));
}

MpiRequests NodeLink::requests() const {
  return {mpi_comm(group_), max_message_bytes_};
}

int NodeLink::node_of(int rank) const {
  return node_of_rank(first_, rank);
}

int NodeLink::leader(int node, uint64_t round) const {
  const Range there = ranks(node);
  return static_cast<int>(there.begin) + SharedSlots::leader(round, static_cast<int>(there.size()));
}

bool NodeLink::adds_nodes_by_tree() const {
  return blocks_of_nodes_.size() == first_.size() - 1;
}

char* NodeLink::staging(uint64_t round, int64_t bytes) {
  at::Tensor& memory = staging_[round % SharedSlots::kNumSlots];
  if (!memory.defined() || memory.numel() < bytes) {
    const MemoryScope scope(MemoryClass::kCommunication);
    memory = at::empty({bytes}, at::kByte);
  }
  return static_cast<char*>(memory.data_ptr());
}

}  // namespace vit_hybrid::comm
