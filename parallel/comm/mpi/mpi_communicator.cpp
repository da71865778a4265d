// The MPI back end: which task carries out which operation, by messages or through shared memory.
#include "parallel/comm/mpi/mpi_communicator.h"

#include <cstring>
#include <utility>
#include <vector>

#include "parallel/comm/mpi/mpi_tasks.h"
#include "parallel/comm/node_board.h"
#include "parallel/comm/shared_memory/shared_tasks.h"
#include "src/base/error.h"
#include "src/base/text.h"

namespace vit_hybrid::comm {

namespace {

class MpiCommunicator final : public CommunicatorBase {
 public:
  MpiCommunicator(std::string axis, MpiGroup group, const TransportOptions& options)
      : CommunicatorBase(std::move(axis), group.rank(), group.size(), at::kCPU, group.watched()),
        link_(std::make_shared<MpiLink>(std::move(group), options)) {
    if (use_shared_memory()) {
      shared_ = std::make_shared<SharedLink>(link_->group, options.slot_bytes);
    }
  }

  std::string back_end() const override { return shared_ != nullptr ? "mpi, shared memory" : "mpi, messages"; }

 private:
  bool use_shared_memory() const;
  std::unique_ptr<MessagesTask> messages(std::vector<at::Tensor> tensors) const {
    return std::make_unique<MessagesTask>(link_, std::move(tensors));
  }

  Started start_all_reduce(const at::Tensor& tensor, ReduceOp op) override;
  Started start_reduce_scatter(const at::Tensor& output, const at::Tensor& input, ReduceOp op) override;
  Started start_all_gather(const at::Tensor& output, const at::Tensor& input) override;
  Started start_broadcast(const at::Tensor& tensor, int root) override;
  Started start_exchange(std::vector<Transfer> transfers) override;
  Started start_barrier() override;

  std::shared_ptr<MpiLink> link_;
  std::shared_ptr<SharedLink> shared_;  // null: by messages
};

bool MpiCommunicator::use_shared_memory() const {
  const TransportOptions& options = link_->options;
  if (options.host_path == HostPath::kMessages) return false;
  const bool one_node = link_->group.is_on_one_node();
  if (options.host_path == HostPath::kSharedMemory) {
    VH_ASSERT(one_node, str("axis '", axis(), "' spans nodes, which share no memory"));
    return true;
  }
  // A full /dev/shm kills a process with SIGBUS at its first write. Half of what is free may be
  // taken, as other groups of the node ask at the same moment.
  const int64_t needed = size() * SharedSlots::bytes_per_rank(options.slot_bytes);
  return one_node && link_->group.min(free_shared_memory()) / 2 >= needed;
}

CommunicatorBase::Started MpiCommunicator::start_all_reduce(const at::Tensor& tensor, ReduceOp op) {
  if (shared_ != nullptr) return shared_all_reduce(shared_, tensor, op);
  return std::make_unique<ReductionTask>(link_, tensor, tensor, op, ReductionTask::Result::kWhole);
}

CommunicatorBase::Started MpiCommunicator::start_reduce_scatter(const at::Tensor& output, const at::Tensor& input,
                                                                ReduceOp op) {
  if (shared_ != nullptr) return shared_reduce_scatter(shared_, output, input, op);
  return std::make_unique<ReductionTask>(link_, output, input, op, ReductionTask::Result::kOwnPart);
}

CommunicatorBase::Started MpiCommunicator::start_all_gather(const at::Tensor& output, const at::Tensor& input) {
  if (shared_ != nullptr) return shared_all_gather(shared_, output, input);
  const Partition parts(output.numel(), size());
  const auto element_bytes = static_cast<int64_t>(output.element_size());
  char* const own = static_cast<char*>(output.data_ptr()) + parts.part(rank()).begin * element_bytes;
  if (own != input.data_ptr()) std::memcpy(own, input.data_ptr(), input.nbytes());
  auto task = messages({output});
  post_all_gather(*link_, task->requests(), parts, output.data_ptr(), element_bytes, link_->next_tag());
  return task;
}

CommunicatorBase::Started MpiCommunicator::start_broadcast(const at::Tensor& tensor, int root) {
  if (shared_ != nullptr) return shared_broadcast(shared_, tensor, root);
  auto task = messages({tensor});
  task->requests().broadcast(tensor.data_ptr(), static_cast<int64_t>(tensor.nbytes()), root);
  return task;
}

CommunicatorBase::Started MpiCommunicator::start_exchange(std::vector<Transfer> transfers) {
  constexpr int kTag = 0;
  std::vector<at::Tensor> tensors;
  for (const Transfer& transfer : transfers)
    tensors.push_back(transfer.tensor);
  auto task = messages(std::move(tensors));
  for (const auto& [direction, tensor, peer] : transfers) {
    const auto bytes = static_cast<int64_t>(tensor.nbytes());
    if (direction == Transfer::Direction::kSend) {
      task->requests().send(tensor.data_ptr(), bytes, peer, kTag);
    } else {
      task->requests().receive(tensor.data_ptr(), bytes, peer, kTag);
    }
  }
  return task;
}

CommunicatorBase::Started MpiCommunicator::start_barrier() {
  if (shared_ != nullptr) return shared_barrier(shared_);
  auto task = messages({});
  task->requests().barrier();
  return task;
}

}  // namespace

std::unique_ptr<Communicator> make_mpi_communicator(const std::string& axis, MpiGroup group,
                                                    const TransportOptions& options) {
  return std::make_unique<MpiCommunicator>(axis, std::move(group), options);
}

}  // namespace vit_hybrid::comm
