// make_communicator() of programs with the fake device: there NCCL's back end may move host tensors, too.
#include "parallel/comm/make_communicator.h"
#include "parallel/comm/mpi/mpi_communicator.h"
#include "parallel/comm/nccl/nccl_communicator.h"
#include "tests/parallel/comm/nccl/fake_device.h"

namespace vit_hybrid::comm {

std::unique_ptr<Communicator> make_communicator(const std::string& axis, MpiGroup group, c10::Device device,
                                                Communicator* world, const TransportOptions& options) {
  std::unique_ptr<Communicator> made;
  if (testing::fake_device().is_used) {
    TransportOptions small = options;
    small.warm_up_bytes = std::min<int64_t>(small.warm_up_bytes, int64_t{64} << 10);
    made = make_nccl_communicator(axis, group, device, world, small);
  } else if (group.size() > 1) {
    made = make_mpi_communicator(axis, std::move(group), options);
  }
  if (made == nullptr) made = std::make_unique<SelfCommunicator>(axis, device.type());
  return made;
}

}  // namespace vit_hybrid::comm
