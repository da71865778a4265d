// cudaProfilerStart() and cudaProfilerStop(), and NVTX through the header-only library of the CUDA toolkit.
#include "src/base/trace.h"

#include <cuda_profiler_api.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <cstdlib>

#include "src/base/text.h"

namespace vit_hybrid::trace {

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

}  // namespace vit_hybrid::trace

#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>

namespace vit_hybrid::trace {

namespace {
nvtxDomainHandle_t g_domain = nullptr;  // null: nobody listens
}  // namespace

std::string open_profiler_ranges() {
  g_domain = nvtxDomainCreateA("vit_hybrid");
  return {};
}

bool has_profiler_ranges() {
  return g_domain != nullptr;
}

void begin_profiler_range(const std::string& name) {
  nvtxEventAttributes_t range{};
  range.version = NVTX_VERSION;
  range.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  range.messageType = NVTX_MESSAGE_TYPE_ASCII;
  range.message.ascii = name.c_str();
  nvtxDomainRangePushEx(g_domain, &range);
}

void end_profiler_range() {
  nvtxDomainRangePop(g_domain);
}

}  // namespace vit_hybrid::trace
#else
#include <cstdlib>

namespace vit_hybrid::trace {

std::string open_profiler_ranges() {
  return std::getenv("NVTX_INJECTION64_PATH") == nullptr ? "" : "the program was built without nvtx3's headers";
}

bool has_profiler_ranges() {
  return false;
}

void begin_profiler_range(const std::string& /*name*/) {}
void end_profiler_range() {}

}  // namespace vit_hybrid::trace
#endif
