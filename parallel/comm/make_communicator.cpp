// The choice of a back end, and the group of one, which copies where input and output differ.
#include "parallel/comm/make_communicator.h"

#include <utility>

#include "parallel/comm/mpi/mpi_communicator.h"
#include "parallel/comm/nccl/nccl_communicator.h"
#include "parallel/comm/node_board.h"
#include "src/base/error.h"
#include "src/base/text.h"

namespace vit_hybrid::comm {

SelfCommunicator::SelfCommunicator(std::string axis, at::DeviceType device_type)
    : CommunicatorBase(std::move(axis), 0, 1, device_type, nullptr) {}

CommunicatorBase::Started SelfCommunicator::start_all_reduce(const at::Tensor& /*tensor*/, ReduceOp /*op*/) {
  return nullptr;
}

CommunicatorBase::Started SelfCommunicator::start_reduce_scatter(const at::Tensor& output, const at::Tensor& input,
                                                                 ReduceOp /*op*/) {
  copy_values(output, input);
  return nullptr;
}

CommunicatorBase::Started SelfCommunicator::start_all_gather(const at::Tensor& output, const at::Tensor& input) {
  copy_values(output, input);
  return nullptr;
}

CommunicatorBase::Started SelfCommunicator::start_broadcast(const at::Tensor& /*tensor*/, int /*root*/) {
  return nullptr;
}

CommunicatorBase::Started SelfCommunicator::start_exchange(std::vector<Transfer> transfers) {
  VH_ASSERT(transfers.empty(), "a group of one has no other ranks");
  return nullptr;
}

CommunicatorBase::Started SelfCommunicator::start_barrier() {
  return nullptr;
}

std::unique_ptr<Communicator> make_communicator(const std::string& axis, MpiGroup group, c10::Device device,
                                                Communicator* world, const TransportOptions& options) {
  std::unique_ptr<Communicator> made;
  if (device.is_cuda()) {
    // Also for a group of one: the split is collective over the world.
    made = make_nccl_communicator(axis, group, device, world, options);
  } else {
    VH_ASSERT(device.is_cpu(), str("no back end for tensors on ", device.str()));
    if (group.size() > 1) made = make_mpi_communicator(axis, std::move(group), options);
  }
  if (made == nullptr) made = std::make_unique<SelfCommunicator>(axis, device.type());
  return made;
}

}  // namespace vit_hybrid::comm
