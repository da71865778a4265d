// Memory and address of a GPU, asked of LibTorch's allocator and of the CUDA runtime.
#include <c10/cuda/CUDACachingAllocator.h>
#include <cuda_runtime_api.h>

#include <array>

#include "src/base/device/device_memory.h"

namespace vit_hybrid {

int64_t device_peak_bytes(c10::Device device) {
  if (!device.is_cuda()) {
    return 0;
  }
  return c10::cuda::CUDACachingAllocator::getDeviceStats(device.index()).reserved_bytes[0].peak;  // 0: of all pools
}

int64_t device_total_bytes(c10::Device device) {
  cudaDeviceProp properties{};
  if (!device.is_cuda() || cudaGetDeviceProperties(&properties, device.index()) != cudaSuccess) {
    return 0;
  }
  return static_cast<int64_t>(properties.totalGlobalMem);
}

std::string device_pci_address(c10::Device device) {
  std::array<char, 32> text{};
  if (!device.is_cuda() || cudaDeviceGetPCIBusId(text.data(), static_cast<int>(text.size()), device.index()) != 0) {
    return {};
  }
  return text.data();
}

}  // namespace vit_hybrid
