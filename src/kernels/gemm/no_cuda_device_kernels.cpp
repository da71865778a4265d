// A program without CUDA has no GPU to ask or to measure.
#include "src/base/error.h"
#include "src/kernels/gemm/device_kernels.h"

namespace vit_hybrid::kernels {

const DeviceTraits& device_traits(c10::Device device) {
  fail_invariant("a GPU in a program without CUDA", __FILE__, __LINE__, device.str());
}

double device_microseconds(const std::function<void()>& /*work*/, Effort /*effort*/) {
  fail_invariant("a GPU in a program without CUDA", __FILE__, __LINE__, "device_microseconds");
}

void synchronize_device() {
  fail_invariant("a GPU in a program without CUDA", __FILE__, __LINE__, "synchronize_device");
}

void release_unused_device_memory() {
  fail_invariant("a GPU in a program without CUDA", __FILE__, __LINE__, "release_unused_device_memory");
}

}  // namespace vit_hybrid::kernels
