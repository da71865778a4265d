// The MPI back end: which ranks of a group meet in shared memory, and exchange by messages.
#include "parallel/comm/mpi/mpi_communicator.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "parallel/comm/agreement.h"
#include "parallel/comm/host_task.h"
#include "parallel/comm/mpi/mpi_handle.h"
#include "parallel/comm/node_board.h"
#include "parallel/comm/nodes/node_collectives.h"
#include "src/base/error.h"
#include "src/base/log.h"
#include "src/base/shareable_tensor.h"
#include "src/base/text.h"

namespace vit_hybrid::comm {

namespace {

// The messages of exchange(). It does not keep the link: one that fails is never freed, and the others wait where that
// is.
class ExchangeTask final : public HostTask {
 public:
  ExchangeTask(const NodeLink& link, const std::vector<Transfer>& transfers)
      : watched_(link.group().watched()), requests_(link.requests()) {
    constexpr int kTag = 0;
    for (const auto& [direction, tensor, peer] : transfers) {
      const auto bytes = static_cast<int64_t>(tensor.nbytes());
      if (direction == Transfer::Direction::kSend) {
        link.count_sent(peer, bytes);
        requests_.send(tensor.data_ptr(), bytes, peer, kTag);
      } else {
        requests_.receive(tensor.data_ptr(), bytes, peer, kTag);
      }
      tensors_.push_back(tensor);
    }
  }

  bool advance() override { return requests_.test(); }
  std::vector<int> awaits() const override { return watched_->to_world(requests_.pending_peers()); }

 private:
  std::shared_ptr<WatchedGroup> watched_;
  std::vector<at::Tensor> tensors_;
  MpiRequests requests_;
};

// The nodes that speak: where a group spans several that are not the blocks of its sums, every rank is one.
std::vector<int> speaking_nodes(const std::vector<int>& machines, const SumBlocks& blocks, HostPath path) {
  const bool speaks_alone = path == HostPath::kMessages || (machines.size() > 1 && machines != blocks);
  const int ranks = std::accumulate(machines.begin(), machines.end(), 0);
  return speaks_alone ? std::vector<int>(static_cast<size_t>(ranks), 1) : machines;
}

GroupNodes nodes_of(const TransportOptions& options) {
  const SumBlocks& blocks = options.sum_blocks.empty() ? options.nodes : options.sum_blocks;
  return {speaking_nodes(options.nodes, blocks, options.host_path), blocks, options.most_nodes_in_one_step};
}

class MpiCommunicator final : public CommunicatorBase {
 public:
  MpiCommunicator(std::string axis, MpiGroup group, const TransportOptions& options)
      : CommunicatorBase(std::move(axis), group.rank(), group.size(), at::kCPU, group.watched()) {
    const std::vector<int> machines = options.nodes.empty() ? group.node_sizes() : options.nodes;
    const SumBlocks blocks = options.sum_blocks.empty() ? machines : options.sum_blocks;
    std::vector<int> nodes = speaking_nodes(machines, blocks, options.host_path);
    VH_ASSERT(std::accumulate(blocks.begin(), blocks.end(), 0) == size(),
              str("blocks of a sum for ", size(), " ranks"));
    TransportOptions fitted = options;
    fitted.slot_bytes = nodes == machines ? slots_in_memory(group, nodes, options) : 0;
    if (fitted.slot_bytes == 0) {
      nodes.assign(static_cast<size_t>(size()), 1);
      fitted.slot_bytes = options.slot_bytes_between_nodes;
    }
    VH_ASSERT(options.host_path != HostPath::kSharedMemory || nodes.size() == 1,
              str("axis '", this->axis(), "' spans nodes, which share no memory"));
    link_ = std::make_shared<NodeLink>(std::move(group), nodes, blocks, fitted);
    if (machines.size() > 1) link_->count_for(this->axis(), machines);
  }

  bool may_share() const override { return link_->num_nodes() < size(); }

  void share(const at::Tensor& tensor) override {
    try {
      link_->share(tensor);
    } catch (const AgreedError& error) {
      if (error.error_class() != ErrorClass::kIo) throw;
      if (error.speaks()) note_unshared(error);
    }
  }

  std::string back_end() const override {
    if (link_->num_nodes() == 1) return "mpi, shared memory";
    return link_->num_nodes() == size() ? "mpi, messages" : "mpi, node by node";
  }

 private:
  // How large slots are where the ranks of each node have the memory to add up what they have before it leaves the
  // node; else 0.
  static int64_t slots_in_memory(const MpiGroup& group, const std::vector<int>& nodes,
                                 const TransportOptions& options) {
    const int64_t ranks = *std::max_element(nodes.begin(), nodes.end());
    const int64_t free = group.min(free_shared_memory());
    // A full /dev/shm kills a process with SIGBUS at its first write. Half of what is free may be taken, as other
    // groups of the node ask at the same moment.
    const auto fits = [&](int64_t slot) {
      return free / 2 >= ranks * SharedSlots::bytes_per_rank(slot) || options.host_path == HostPath::kSharedMemory;
    };
    int64_t slot = nodes.size() > 1 ? options.slot_bytes_between_nodes : options.slot_bytes;
    while (!fits(slot) && slot / 2 >= options.slot_bytes)
      slot /= 2;
    if (fits(slot)) return slot;
    warn_of_messages(group.size(), free, 2 * ranks * SharedSlots::bytes_per_rank(slot));
    return 0;
  }

  // Once in a process: all of its groups are of the same nodes.
  static void warn_of_messages(int ranks, int64_t free, int64_t wanted) {
    static bool is_told = false;
    if (std::exchange(is_told, true)) return;
    log_warning(str("a node of a group of ", ranks, " ranks has ", bytes_text(free), " free in /dev/shm, where ",
                    bytes_text(wanted), " are needed for its ranks to meet: every rank sends messages instead, which ",
                    "is slower; remove what is left there, or have it mounted larger (docker --shm-size)"));
  }

  Started start_all_reduce(const at::Tensor& tensor, ReduceOp op, const Work::State* first) override {
    auto task = node_all_reduce(link_, tensor, op);
    task->follow(first);
    return task;
  }
  Started start_reduce_scatter(const at::Tensor& output, const at::Tensor& input, ReduceOp op) override {
    return node_reduce_scatter(link_, output, input, op);
  }
  Started start_all_gather(const at::Tensor& output, const at::Tensor& input) override {
    return node_all_gather(link_, output, input);
  }
  Started start_broadcast(const at::Tensor& tensor, int root) override { return node_broadcast(link_, tensor, root); }
  Started start_exchange(std::vector<Transfer> transfers) override {
    return std::make_unique<ExchangeTask>(*link_, transfers);
  }
  Started start_barrier() override { return node_barrier(link_); }

  std::shared_ptr<NodeLink> link_;
};

}  // namespace

std::unique_ptr<Communicator> make_mpi_communicator(const std::string& axis, MpiGroup group,
                                                    const TransportOptions& options) {
  return std::make_unique<MpiCommunicator>(axis, std::move(group), options);
}

void warn_of_unshared(const MpiGroup& world) {
  try {
    agree(world, unshared());
  } catch (const AgreedError& error) {
    note_unshared(error);
    log_warning(str(error.place(), ": ", error.message(), "; what ranks add up goes through /dev/shm instead, ",
                    "which is slower"));
  }
}

int num_sharing_ranks(int rank, const TransportOptions& options) {
  const GroupNodes nodes = nodes_of(options);
  return static_cast<int>(nodes.ranks(nodes.node_of(rank)).size());
}

int64_t host_group_bytes(int rank, const TransportOptions& options, const LongestSum& longest) {
  const GroupNodes nodes = nodes_of(options);
  if (nodes.num_nodes() == 1) return 0;
  const int64_t slot = options.slot_bytes_between_nodes;
  const int node = nodes.node_of(rank);
  const auto ranks = static_cast<int>(nodes.ranks(node).size());
  return SharedSegment::own_bytes(ranks, SharedSlots::bytes_per_rank(slot)) +
         SharedSlots::most_led(ranks) * staging_bytes(nodes, node, longest, slot);
}

}  // namespace vit_hybrid::comm
