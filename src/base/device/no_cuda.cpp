// What a program without CUDA has instead of GPUs: none.
#include "src/base/device/device_graph.h"
#include "src/base/device/gpu_survey.h"
#include "src/base/device/profiler.h"
#include "src/base/error.h"
#include "src/base/version.h"

#include <cstdlib>

namespace vit_hybrid {

std::unique_ptr<DeviceRecorder> make_device_recorder(Unrecordable /*unrecordable*/,
                                                     std::shared_ptr<RecordingWarning> /*warning*/) {
  VH_ASSERT(false, "this program was built without CUDA");
}

int64_t device_peak_bytes(c10::Device /*device*/) {
  return 0;
}

int64_t device_total_bytes(c10::Device /*device*/) {
  return 0;
}

std::string device_pci_address(c10::Device /*device*/) {
  return {};
}

bool is_built_with_cuda() {
  return false;
}

GpuSurvey survey_gpus() {
  GpuSurvey survey;
  survey.none_reason = "this program was built without CUDA";
  return survey;
}

std::vector<std::pair<std::string, std::string>> cuda_library_versions() {
  return {};
}

std::string open_profiler_ranges() {
  return std::getenv("NVTX_INJECTION64_PATH") == nullptr ? "" : "the program was built without CUDA";
}

bool has_profiler_ranges() {
  return false;
}

void begin_profiler_range(const std::string& /*name*/) {}
void end_profiler_range() {}

bool has_device_profiler() {
  return false;
}

std::string start_device_capture() {
  return "this program was built without CUDA";
}

std::string stop_device_capture() {
  return {};
}

}  // namespace vit_hybrid
