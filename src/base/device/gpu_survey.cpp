// GpuSurvey: the words for a machine without GPUs.
#include "src/base/device/gpu_survey.h"

#include "src/base/text.h"

namespace vit_hybrid {

std::string cuda_version_text(int number) {
  return str(number / 1000, ".", number % 1000 / 10);
}

GpuSurvey explain(const CudaRefusal& refusal, const char* visible_devices) {
  GpuSurvey survey;
  survey.has_cuda = true;
  if (refusal.driver_version == 0) {
    survey.none_reason = "no NVIDIA driver is installed";
  } else if (refusal.kind == CudaRefusal::Kind::kDriverTooOld) {
    survey.is_broken = true;
    survey.none_reason = str("the NVIDIA driver is one for CUDA ", cuda_version_text(refusal.driver_version),
                             ", older than the CUDA ", cuda_version_text(refusal.runtime_version), " of this program");
  } else if (refusal.kind == CudaRefusal::Kind::kNoDevice) {
    survey.none_reason = "the NVIDIA driver finds no GPU";
    if (visible_devices != nullptr) {
      survey.none_reason += str(" (CUDA_VISIBLE_DEVICES is '", visible_devices, "')");
    }
  } else {
    survey.is_broken = true;
    survey.none_reason = str("CUDA cannot start: ", refusal.text);
  }
  return survey;
}

}  // namespace vit_hybrid
