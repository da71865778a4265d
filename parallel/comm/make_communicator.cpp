// The choice of a back end: shared memory or messages on the host, NCCL on GPUs, none for a group of one.
#include "parallel/comm/make_communicator.h"

#include "parallel/comm/mpi/mpi_communicator.h"
#include "parallel/comm/nccl/nccl_communicator.h"
#include "parallel/comm/node_board.h"
#include "src/base/text.h"

namespace vit_hybrid::comm {

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
