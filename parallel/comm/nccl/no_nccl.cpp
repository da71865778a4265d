// The NCCL back end of a program built without CUDA: a clear refusal.
#include "parallel/comm/make_communicator.h"
#include "parallel/comm/nccl/device_marks.h"
#include "parallel/comm/nccl/nccl_communicator.h"
#include "src/base/error.h"
#include "src/base/text.h"

namespace vit_hybrid::comm {

std::unique_ptr<Communicator> make_nccl_communicator(const std::string& axis, const MpiGroup& /*group*/,
                                                     c10::Device device, Communicator* /*world*/,
                                                     const TransportOptions& /*options*/) {
  throw Error(ErrorClass::kUsage,
              str("axis '", axis, "': this program was built without CUDA and cannot use ", device.str()),
              "use --device cpu, or the program built with VIT_HYBRID_ENABLE_CUDA=ON");
}

trace::MakeMark device_marks(c10::Device /*device*/) {
  return nullptr;
}

std::string nccl_version() {
  return {};
}

}  // namespace vit_hybrid::comm
