// NVTX through the header-only library of the CUDA toolkit.
#include "src/base/device/profiler_ranges.h"

#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>

namespace vit_hybrid {

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

}  // namespace vit_hybrid
#else
#include <cstdlib>

namespace vit_hybrid {

std::string open_profiler_ranges() {
  return std::getenv("NVTX_INJECTION64_PATH") == nullptr ? "" : "the program was built without nvtx3's headers";
}

bool has_profiler_ranges() {
  return false;
}

void begin_profiler_range(const std::string& /*name*/) {}
void end_profiler_range() {}

}  // namespace vit_hybrid
#endif
