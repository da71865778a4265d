// The communicator of a single process.
#include "tests/support/group_of_one.h"

#include "parallel/comm/make_communicator.h"

namespace vit_hybrid::testing {

comm::Communicator& group_of_one() {
  static comm::SelfCommunicator group("tensor", at::kCPU);
  return group;
}

}  // namespace vit_hybrid::testing
