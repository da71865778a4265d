// Versions of CUDA's libraries, which need no GPU to tell them.
#include <ATen/detail/CUDAHooksInterface.h>
#include <cuda_runtime_api.h>

#include "src/base/device/gpu_survey.h"
#include "src/base/text.h"
#include "src/base/version.h"

namespace vit_hybrid {

namespace {

// 91002 is 9.10.2; before version 9 there was a digit less: 8902 is 8.9.2.
std::string cudnn_text(int64_t number) {
  const int64_t major_unit = number >= 10000 ? 10000 : 1000;
  return str(number / major_unit, ".", number % major_unit / 100, ".", number % 100);
}

}  // namespace

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

}  // namespace vit_hybrid
