// Tables of names, with '#' for the number of a block.
#include "src/checkpoint/weight_names.h"

#include <algorithm>
#include <cctype>
#include <optional>

#include "src/base/error.h"
#include "src/base/text.h"

namespace vit_hybrid::train {

namespace {

using model::Pooling;
using model::Task;

struct Rule {
  const char* ours;
  const char* theirs;
};

constexpr Rule kTorchvision[] = {
    {"cls_token", "class_token"},
    {"pos_embed", "encoder.pos_embedding"},
    {"patch_embed.proj.weight", "conv_proj.weight"},
    {"patch_embed.proj.bias", "conv_proj.bias"},
    {"blocks.#.norm1.weight", "encoder.layers.encoder_layer_#.ln_1.weight"},
    {"blocks.#.norm1.bias", "encoder.layers.encoder_layer_#.ln_1.bias"},
    {"blocks.#.attn.qkv.weight", "encoder.layers.encoder_layer_#.self_attention.in_proj_weight"},
    {"blocks.#.attn.qkv.bias", "encoder.layers.encoder_layer_#.self_attention.in_proj_bias"},
    {"blocks.#.attn.proj.weight", "encoder.layers.encoder_layer_#.self_attention.out_proj.weight"},
    {"blocks.#.attn.proj.bias", "encoder.layers.encoder_layer_#.self_attention.out_proj.bias"},
    {"blocks.#.norm2.weight", "encoder.layers.encoder_layer_#.ln_2.weight"},
    {"blocks.#.norm2.bias", "encoder.layers.encoder_layer_#.ln_2.bias"},
    {"blocks.#.mlp.fc1.weight", "encoder.layers.encoder_layer_#.mlp.0.weight"},
    {"blocks.#.mlp.fc1.bias", "encoder.layers.encoder_layer_#.mlp.0.bias"},
    {"blocks.#.mlp.fc2.weight", "encoder.layers.encoder_layer_#.mlp.3.weight"},
    {"blocks.#.mlp.fc2.bias", "encoder.layers.encoder_layer_#.mlp.3.bias"},
    {"norm.weight", "encoder.ln.weight"},
    {"norm.bias", "encoder.ln.bias"},
    {"head.weight", "heads.head.weight"},
    {"head.bias", "heads.head.bias"},
};

// timm's names are ours, and NERSC's ViT has them from timm; the last norm has two names.
constexpr const char* kOurs[] = {
    "cls_token",
    "pos_embed",
    "patch_embed.proj.weight",
    "patch_embed.proj.bias",
    "blocks.#.norm1.weight",
    "blocks.#.norm1.bias",
    "blocks.#.attn.qkv.weight",
    "blocks.#.attn.qkv.bias",
    "blocks.#.attn.proj.weight",
    "blocks.#.attn.proj.bias",
    "blocks.#.norm2.weight",
    "blocks.#.norm2.bias",
    "blocks.#.mlp.fc1.weight",
    "blocks.#.mlp.fc1.bias",
    "blocks.#.mlp.fc2.weight",
    "blocks.#.mlp.fc2.bias",
    "norm.weight",
    "norm.bias",
    "fc_norm.weight",
    "fc_norm.bias",
    "head.weight",
    "head.bias",
};

// The number that stands for '#' in a pattern that `name` follows; "" where it has none and is the name itself.
std::optional<std::string> match(const std::string& pattern, const std::string& name) {
  const size_t mark = pattern.find('#');
  if (mark == std::string::npos) {
    return pattern == name ? std::optional<std::string>("") : std::nullopt;
  }
  const size_t tail = pattern.size() - mark - 1;
  constexpr size_t kMostDigits = 6;
  if (name.size() < mark + 1 + tail || name.size() > mark + kMostDigits + tail ||
      name.compare(0, mark, pattern, 0, mark) != 0 ||
      name.compare(name.size() - tail, tail, pattern, mark + 1, tail) != 0) {
    return std::nullopt;
  }
  const std::string number = name.substr(mark, name.size() - tail - mark);
  const bool is_number =
      std::all_of(number.begin(), number.end(), [](unsigned char c) { return std::isdigit(c) != 0; });
  return is_number && (number == "0" || number.front() != '0') ? std::optional<std::string>(number) : std::nullopt;
}

std::string filled(const std::string& pattern, const std::string& number) {
  const size_t mark = pattern.find('#');
  return mark == std::string::npos ? pattern : pattern.substr(0, mark) + number + pattern.substr(mark + 1);
}

std::vector<Rule> rules_of(WeightNames names) {
  if (names == WeightNames::kTorchvision) {
    return {std::begin(kTorchvision), std::end(kTorchvision)};
  }
  std::vector<Rule> rules;
  for (const char* const name : kOurs) {
    rules.push_back({name, name});
  }
  return rules;
}

std::string without_wrappers(std::string name) {
  for (bool again = true; again;) {
    again = false;
    for (const std::string wrapper : {"module.", "_orig_mod."}) {
      if (name.starts_with(wrapper)) {
        name.erase(0, wrapper.size());
        again = true;
      }
    }
  }
  return name;
}

}  // namespace

std::vector<std::string> weight_names_words() {
  return {"timm", "torchvision", "nersc"};
}

std::string no_counterpart(WeightNames names, const model::VitOptions& options) {
  if (names == WeightNames::kNersc && options.task != Task::kForecast) {
    return "NERSC's ViT predicts fields, it has no classifier";
  }
  if (names != WeightNames::kTorchvision) {
    return "";
  }
  if (options.task != Task::kClassify) {
    return "torchvision's ViT is a classifier, it has no head that predicts fields";
  }
  if (options.pooling != Pooling::kToken) {
    return "torchvision's ViT looks at a class token, it has no pooling by the mean";
  }
  return options.image_height == options.image_width ? "" : "torchvision's ViT has square images only";
}

std::string foreign_name(WeightNames names, const std::string& ours) {
  for (const Rule& rule : rules_of(names)) {
    if (const auto number = match(rule.ours, ours)) {
      return filled(rule.theirs, *number);
    }
  }
  VH_ASSERT(false, str("no other name for ", ours));
}

std::string our_name(WeightNames names, const std::string& foreign) {
  const std::string plain = without_wrappers(foreign);
  for (const Rule& rule : rules_of(names)) {
    if (const auto number = match(rule.theirs, plain)) {
      return filled(rule.ours, *number);
    }
  }
  return "";
}

}  // namespace vit_hybrid::train
