// The named models of WORKLOAD: weather forecasters and image classifiers.
#include <algorithm>
#include <functional>
#include <map>
#include <numeric>

#include "model/vit_options.h"
#include "src/base/error.h"
#include "src/base/nearest_word.h"
#include "src/base/text.h"

namespace vit_hybrid::model {

namespace {

VitOptions forecaster(int64_t embed_dim, int64_t depth, int64_t patch_size) {
  VitOptions options;
  options.embed_dim = embed_dim;
  options.depth = depth;
  options.patch_size = patch_size;
  options.mlp_hidden = 4 * embed_dim;
  return options;
}

VitOptions classifier(int64_t patch_size, int64_t embed_dim, int64_t depth, int64_t num_heads, int64_t mlp_hidden) {
  VitOptions options;
  options.task = Task::kClassify;
  options.image_height = 224;
  options.image_width = 224;
  options.in_channels = 3;
  options.patch_size = patch_size;
  options.embed_dim = embed_dim;
  options.depth = depth;
  options.num_heads = num_heads;
  options.mlp_hidden = mlp_hidden;
  return options;
}

// g and G: X. Zhai et al., "Scaling Vision Transformers", CVPR 2022, table 2.
const std::map<std::string, VitOptions>& presets() {
  static const std::map<std::string, VitOptions> table = {
      {"weather-short", forecaster(384, 6, 8)},        {"weather-base", forecaster(384, 6, 8)},
      {"weather-d12", forecaster(384, 12, 8)},         {"weather-mp", forecaster(1024, 12, 8)},
      {"weather-mp-patch4", forecaster(1024, 12, 4)},  {"vit-ti16", classifier(16, 192, 12, 3, 768)},
      {"vit-s16", classifier(16, 384, 12, 6, 1536)},   {"vit-b16", classifier(16, 768, 12, 12, 3072)},
      {"vit-l16", classifier(16, 1024, 24, 16, 4096)}, {"vit-h14", classifier(14, 1280, 32, 16, 5120)},
      {"vit-g14", classifier(14, 1408, 40, 16, 6144)}, {"vit-gg14", classifier(14, 1664, 48, 16, 8192)},
  };
  return table;
}

}  // namespace

std::vector<std::string> preset_names() {
  std::vector<std::string> names;
  for (const auto& [name, options] : presets()) {
    names.push_back(name);
  }
  return names;
}

VitOptions preset(const std::string& name) {
  const auto found = presets().find(name);
  if (found != presets().end()) {
    return found->second;
  }
  const auto names = preset_names();
  throw Error(ErrorClass::kUsage, str("model preset '", name, "' is not known; known are ", join(names)),
              str("did you mean '", nearest_word(name, names), "'?"));
}

}  // namespace vit_hybrid::model
