// Memory of GPUs in a program without CUDA: there are none.
#include "src/base/device/device_memory.h"

namespace vit_hybrid {

int64_t device_peak_bytes(c10::Device /*device*/) {
  return 0;
}

int64_t device_total_bytes(c10::Device /*device*/) {
  return 0;
}

std::string device_pci_address(c10::Device /*device*/) {
  return {};
}

}  // namespace vit_hybrid
