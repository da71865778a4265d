// The named models of the workload, and every problem of the options.
#include "model/vit_options.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <numeric>

#include "src/base/error.h"
#include "src/base/text.h"

namespace vit_hybrid::model {

namespace {

VitOptions forecaster(int64_t embed_dim, int64_t depth, int64_t patch_size) {
  VitOptions options;
  options.embed_dim = embed_dim;
  options.depth = depth;
  options.patch_height = options.patch_width = patch_size;
  options.mlp_hidden = 4 * embed_dim;
  return options;
}

VitOptions classifier(int64_t patch_size, int64_t embed_dim, int64_t depth, int64_t num_heads, int64_t mlp_hidden) {
  VitOptions options;
  options.task = Task::kClassify;
  options.image_height = 224;
  options.image_width = 224;
  options.in_channels = 3;
  options.patch_height = options.patch_width = patch_size;
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

constexpr int64_t kMostSide = 1 << 20;
constexpr int64_t kMostValuesOfPatch = int64_t{1} << 40;

// The divisors of `number` nearest to `wanted`, at most six, in rising order.
std::vector<int64_t> divisors_near(int64_t number, int64_t wanted) {
  std::vector<int64_t> divisors;
  for (int64_t candidate = 1; candidate <= number; ++candidate) {
    if (number % candidate == 0) {
      divisors.push_back(candidate);
    }
  }
  std::stable_sort(divisors.begin(), divisors.end(),
                   [&](int64_t a, int64_t b) { return std::abs(a - wanted) < std::abs(b - wanted); });
  divisors.resize(std::min<size_t>(divisors.size(), 6));
  std::sort(divisors.begin(), divisors.end());
  return divisors;
}

class Checker {
 public:
  void at_least(const char* name, int64_t value, int64_t least) {
    if (value < least) {
      problems_.push_back(str(name, " is ", value, "; it must be at least ", least));
    }
  }

  void at_most(const char* name, int64_t value, const char* limit_name, int64_t limit, const char* why) {
    if (value > limit) {
      problems_.push_back(str(name, " is ", value, ", more than the ", limit, " ", limit_name, " (", why,
                              "); allowed are 1 to ", limit));
    }
  }

  // Not a number is outside of every range.
  void fraction(const char* name, double value) {
    if (!(value >= 0.0 && value < 1.0)) {
      problems_.push_back(str(name, " is ", value, "; allowed are 0 up to, but not including, 1"));
    }
  }

  void positive(const char* name, double value) {
    if (!(value > 0.0 && value < 1.0)) {
      problems_.push_back(str(name, " is ", value, "; allowed is more than 0 and less than 1"));
    }
  }

  void divides(const char* part_name, int64_t part, const char* whole_name, int64_t whole) {
    if (part >= 1 && whole >= 1 && whole % part != 0) {
      problems_.push_back(str(part_name, " is ", part, ", which does not divide ", whole_name, " ", whole,
                              "; near it do ", join(divisors_near(whole, part))));
    }
  }

  std::vector<std::string> take() { return std::move(problems_); }

 private:
  std::vector<std::string> problems_;
};

void check_sizes(const VitOptions& options, Checker& checker) {
  checker.at_least("image_height", options.image_height, 1);
  checker.at_least("image_width", options.image_width, 1);
  checker.at_least("patch_height", options.patch_height, 1);
  checker.at_least("patch_width", options.patch_width, 1);
  checker.at_least("in_channels", options.in_channels, 1);
  checker.at_least("embed_dim", options.embed_dim, 1);
  checker.at_least("depth", options.depth, 1);
  checker.at_least("num_heads", options.num_heads, 1);
  checker.at_least("mlp_hidden", options.mlp_hidden, 1);
  if (options.task == Task::kForecast) {
    checker.at_least("out_channels", options.out_channels, 1);
  } else {
    checker.at_least("num_classes", options.num_classes, 2);
    checker.fraction("label_smoothing", options.label_smoothing);
  }
  checker.at_most("patch_height", options.patch_height, "rows", std::min(options.image_height, kMostSide),
                  "of the input; the last patches of a side may be cut");
  checker.at_most("patch_width", options.patch_width, "columns", std::min(options.image_width, kMostSide),
                  "of the input; the last patches of a side may be cut");
  const auto side = [](int64_t pixels) { return std::clamp<int64_t>(pixels, 1, kMostSide); };
  checker.at_most("channels of a patch", std::max(options.in_channels, options.out_channels), "channels",
                  kMostValuesOfPatch / (side(options.patch_height) * side(options.patch_width)),
                  "of its pixels so many channels can be counted");
  checker.divides("num_heads", options.num_heads, "embed_dim", options.embed_dim);
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

std::vector<std::string> validate(const VitOptions& options, int tensor_size, int pipeline_size) {
  Checker checker;
  check_sizes(options, checker);
  checker.fraction("dropout", options.dropout);
  checker.fraction("attention_dropout", options.attention_dropout);
  checker.fraction("drop_path", options.drop_path);
  checker.positive("norm_eps", options.norm_eps);
  checker.at_least("tensor degree (--tp)", tensor_size, 1);
  checker.at_least("pipeline degree (--pp)", pipeline_size, 1);
  checker.at_most("tensor degree (--tp)", tensor_size, "attention heads", options.num_heads,
                  "each tensor rank holds whole heads, at least one");
  checker.at_most("tensor degree (--tp)", tensor_size, "hidden features", options.mlp_hidden,
                  "each tensor rank holds at least one feature of the MLP");
  checker.at_most("pipeline degree (--pp)", pipeline_size, "layer units", options.num_units(),
                  "patch embedding, blocks and head; each stage holds at least one");
  return checker.take();
}

}  // namespace vit_hybrid::model
