// cudaProfilerStart() and cudaProfilerStop().
#include <cuda_profiler_api.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <cstdlib>

#include "src/base/device/profiler_capture.h"
#include "src/base/text.h"

namespace vit_hybrid {

namespace {

std::string problem_of(const char* call, cudaError_t error) {
  return error == cudaSuccess ? "" : str(call, " failed: ", cudaGetErrorString(error));
}

}  // namespace

bool has_device_profiler() {
  // Nsight Systems sets the first ones, for its session and for what it loads into the process; Nsight Compute the
  // last.
  constexpr std::array<const char*, 4> kNames = {"NSYS_PROFILING_SESSION_ID", "CUDA_INJECTION64_PATH",
                                                 "NVTX_INJECTION64_PATH", "NV_NSIGHT_INJECTION_TRANSPORT_TYPE"};
  return std::any_of(kNames.begin(), kNames.end(), [](const char* name) { return std::getenv(name) != nullptr; });
}

std::string start_device_capture() {
  return problem_of("cudaProfilerStart", cudaProfilerStart());
}

std::string stop_device_capture() {
  cudaDeviceSynchronize();  // what was launched belongs to it; an error of it is told where it is waited for
  return problem_of("cudaProfilerStop", cudaProfilerStop());
}

}  // namespace vit_hybrid
