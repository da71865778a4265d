// GPUs in a program without CUDA: none.
#include "src/base/device/gpu_survey.h"

namespace vit_hybrid {

bool is_built_with_cuda() {
  return false;
}

GpuSurvey survey_gpus() {
  GpuSurvey survey;
  survey.none_reason = "this program was built without CUDA";
  return survey;
}

}  // namespace vit_hybrid
