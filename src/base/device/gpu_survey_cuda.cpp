// The GPUs that this process sees, their memory, and the versions of CUDA's libraries.
#include "src/base/device/gpu_survey.h"

#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <cuda_runtime_api.h>

#include <array>
#include <cstdio>
#include <cstdlib>

#include "src/base/text.h"
#include "src/base/version.h"

namespace vit_hybrid {

namespace {

CudaRefusal refusal_of(cudaError_t error) {
  CudaRefusal refusal;
  refusal.kind = error == cudaErrorInsufficientDriver ? CudaRefusal::Kind::kDriverTooOld
                 : error == cudaErrorNoDevice         ? CudaRefusal::Kind::kNoDevice
                                                      : CudaRefusal::Kind::kOther;
  refusal.text = cudaGetErrorString(error);
  cudaDriverGetVersion(&refusal.driver_version);
  cudaRuntimeGetVersion(&refusal.runtime_version);
  return refusal;
}

// As the driver's tools write it.
std::string uuid_text(const cudaUUID_t& uuid) {
  std::string text = "GPU";
  for (size_t i = 0; i < sizeof uuid.bytes; ++i) {
    if (i == 0 || i == 4 || i == 6 || i == 8 || i == 10) {
      text += '-';
    }
    std::array<char, 3> hex{};
    std::snprintf(hex.data(), hex.size(), "%02x", static_cast<unsigned char>(uuid.bytes[i]));
    text += hex.data();
  }
  return text;
}

// 91002 is 9.10.2; before version 9 there was a digit less: 8902 is 8.9.2.
std::string cudnn_text(int64_t number) {
  const int64_t major_unit = number >= 10000 ? 10000 : 1000;
  return str(number / major_unit, ".", number % major_unit / 100, ".", number % 100);
}

}  // namespace

bool is_built_with_cuda() {
  return true;
}

GpuSurvey survey_gpus() {
  GpuSurvey survey;
  survey.has_cuda = true;
  int count = 0;
  cudaError_t error = cudaGetDeviceCount(&count);
  for (int i = 0; error == cudaSuccess && i < count; ++i) {
    cudaDeviceProp properties{};
    error = cudaGetDeviceProperties(&properties, i);
    survey.gpus.push_back({properties.name, uuid_text(properties.uuid), properties.major, properties.minor});
  }
  if (error == cudaSuccess && count == 0) {
    error = cudaErrorNoDevice;
  }
  if (error != cudaSuccess) {
    cudaGetLastError();  // else the next call of anybody would report it
    return explain(refusal_of(error), std::getenv("CUDA_VISIBLE_DEVICES"));
  }
  return survey;
}

std::vector<std::pair<std::string, std::string>> cuda_library_versions() {
  int runtime = 0;
  const bool is_known = cudaRuntimeGetVersion(&runtime) == cudaSuccess;
  std::vector<std::pair<std::string, std::string>> out = {{"CUDA", is_known ? cuda_version_text(runtime) : "unknown"}};
  const at::CUDAHooksInterface& hooks = at::detail::getCUDAHooks();
  if (hooks.hasCuDNN()) {
    out.emplace_back("cuDNN", cudnn_text(hooks.versionCuDNN()));
  }
  return out;
}

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
