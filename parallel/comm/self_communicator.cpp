// SelfCommunicator: copies where input and output differ.
#include "parallel/comm/self_communicator.h"

#include <utility>

#include "parallel/comm/node_board.h"
#include "src/base/error.h"

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

}  // namespace vit_hybrid::comm
