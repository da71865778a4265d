// The GPUs that the CUDA runtime finds.
#include <cuda_runtime_api.h>

#include <array>
#include <cstdio>
#include <cstdlib>

#include "src/base/device/gpu_survey.h"

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

}  // namespace vit_hybrid
