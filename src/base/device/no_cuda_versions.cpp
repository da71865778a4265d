// CUDA's libraries in a program without CUDA: none.
#include "src/base/version.h"

namespace vit_hybrid {

std::vector<std::pair<std::string, std::string>> cuda_library_versions() {
  return {};
}

}  // namespace vit_hybrid
