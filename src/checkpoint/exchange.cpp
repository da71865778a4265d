// Tables of names, with '#' for the number of a block; the model that weights tell of; their files.
#include "src/checkpoint/exchange.h"

#include <ATen/ops/isfinite.h>

#include <algorithm>
#include <cctype>
#include <cmath>

#include "data/hdf5/hdf5_writer.h"
#include "model/vit_parameters.h"
#include "parallel/comm/agreement.h"
#include "src/base/error.h"
#include "src/base/log.h"
#include "src/base/text.h"
#include "src/checkpoint/safetensors.h"
#include "src/checkpoint/verify.h"

namespace vit_hybrid::train {

namespace {

using model::Pooling;
using model::Task;
using model::VitOptions;
using Shape = std::vector<int64_t>;

// Our name, which is timm's, and NERSC's ViT has it from timm (the last norm has two); and torchvision's, or null.
struct Names {
  const char* ours;
  const char* torchvision;

  const char* of(WeightNames names) const { return names == WeightNames::kTorchvision ? torchvision : ours; }
};
constexpr Names kNames[] = {
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
    {"fc_norm.weight", nullptr},
    {"fc_norm.bias", nullptr},
    {"head.weight", "heads.head.weight"},
    {"head.bias", "heads.head.bias"},
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

std::string without_wrappers(const std::string& name) {
  for (const std::string wrapper : {"module.", "_orig_mod."}) {
    if (name.starts_with(wrapper)) {
      return without_wrappers(name.substr(wrapper.size()));
    }
  }
  return name;
}

constexpr int64_t kMostSize = 1 << 24;  // of a dim: products of three stay within 64 bits

[[noreturn]] void refuse_weights(const std::string& where, const std::string& what) {
  throw Error(ErrorClass::kBadData, str(where, ": ", what),
              "another model: check the model options, and whose names they are");
}

// The shape of a weight that must be there, of `dims` dims of sensible sizes.
Shape shape_of(const WeightShapes& shapes, const std::string& name, size_t dims, const std::string& where) {
  const auto found = shapes.find(name);
  if (found == shapes.end()) {
    refuse_weights(where, str("there is no weight ", name));
  }
  const auto is_sensible = [](int64_t extent) { return extent >= 1 && extent <= kMostSize; };
  if (found->second.size() != dims || !std::all_of(found->second.begin(), found->second.end(), is_sensible)) {
    refuse_weights(where, str("the weight ", name, " is [", join(found->second), "], which no ViT's is"));
  }
  return found->second;
}

int64_t depth_of(const WeightShapes& shapes) {
  int64_t depth = 0;
  while (shapes.count(str("blocks.", depth, ".norm1.weight")) != 0) {
    ++depth;
  }
  return depth;
}

void read_head(const WeightShapes& shapes, const std::string& where, VitOptions& options) {
  const int64_t rows = shape_of(shapes, "head.weight", 2, where)[0];
  if (options.task == Task::kClassify) {
    options.num_classes = rows;
    return;
  }
  const int64_t patch_values = options.input_grid().patch_pixels();
  if (rows % patch_values != 0) {
    refuse_weights(where,
                   str("the weight head.weight has ", rows, " rows, no multiple of ", patch_values, " values a patch"));
  }
  options.out_channels = rows / patch_values;
}

void read_image(const WeightShapes& shapes, const std::string& where, VitOptions& options) {
  const int64_t tokens = shape_of(shapes, "pos_embed", 3, where)[1] - (options.has_class_token() ? 1 : 0);
  const auto side = static_cast<int64_t>(std::lround(std::sqrt(static_cast<double>(tokens))));
  const bool is_square = options.task == Task::kClassify && side * side == tokens;
  options.image_height = is_square ? side * options.patch_height : 0;
  options.image_width = is_square ? side * options.patch_width : 0;
}

constexpr const char* kModelKey = "vit_hybrid.model";
constexpr const char* kDataKey = "vit_hybrid.data";

at::Tensor converted(const at::Tensor& values, at::ScalarType type, const std::string& where) {
  const at::Tensor out = values.to(type).contiguous();
  const auto num_finite = [](const at::Tensor& tensor) { return at::isfinite(tensor).sum().item<int64_t>(); };
  if (num_finite(out) != num_finite(values)) {
    throw Error(ErrorClass::kUsage, str(where, " has values beyond the range of ", c10::toString(type)),
                "choose another --dtype: bf16 has the range of fp32");
  }
  return out;
}

}  // namespace

std::vector<std::string> weight_names_words() {
  return {"timm", "torchvision", "nersc"};
}

std::string no_counterpart(WeightNames names, const VitOptions& options) {
  if (names == WeightNames::kNersc && options.task != Task::kForecast) {
    return "NERSC's ViT predicts fields, it has no classifier";
  }
  if (names != WeightNames::kTimm && options.gelu != kernels::GeluKind::kErf) {
    return "its MLP has GELU with erf, not --gelu tanh";
  }
  if (names != WeightNames::kTimm && (options.patch_height != options.patch_width || options.input_grid().is_cut())) {
    return "its patches are squares that divide the image";
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
  for (const Names& name : kNames) {
    if (const auto number = match(name.ours, ours); number && name.of(names) != nullptr) {
      return filled(name.of(names), *number);
    }
  }
  VH_ASSERT(false, str("no other name for ", ours));
}

std::string our_name(WeightNames names, const std::string& foreign) {
  const std::string plain = without_wrappers(foreign);
  for (const Names& name : kNames) {
    const auto number = name.of(names) != nullptr ? match(name.of(names), plain) : std::nullopt;
    if (number) {
      return filled(name.ours, *number);
    }
  }
  return "";
}

VitOptions model_of_weights(const WeightShapes& shapes, const std::string& where) {
  VitOptions options;
  options.task = shapes.count("head.bias") != 0 ? Task::kClassify : Task::kForecast;
  options.pooling = shapes.count("cls_token") != 0 ? Pooling::kToken : Pooling::kMean;
  options.depth = depth_of(shapes);
  const Shape patch = shape_of(shapes, "patch_embed.proj.weight", 4, where);
  options.embed_dim = patch[0];
  options.in_channels = patch[1];
  options.patch_height = patch[2];
  options.patch_width = patch[3];
  options.mlp_hidden = shape_of(shapes, "blocks.0.mlp.fc1.weight", 2, where)[0];
  options.num_heads = 0;
  read_head(shapes, where, options);
  read_image(shapes, where, options);
  return options;
}

void check_weights(const VitOptions& options, const WeightShapes& shapes, const std::string& where) {
  // First, for a damaged depth would make a list without end.
  if (depth_of(shapes) != options.depth) {
    refuse_weights(where,
                   str("there are weights of ", depth_of(shapes), " blocks, the model's depth is ", options.depth));
  }
  const auto specs = model::parameter_specs(options, {0, options.num_units()}, 0, 0, 1);
  WeightShapes unused = shapes;
  for (const auto& spec : specs) {
    const auto found = shapes.find(spec.name);
    if (found == shapes.end()) {
      refuse_weights(where, str("there is no weight ", spec.name, " [", join(spec.global_shape), "]"));
    }
    if (found->second != spec.global_shape) {
      refuse_weights(where, str("the weight ", spec.name, " is [", join(found->second), "], the model's is [",
                                join(spec.global_shape), "]"));
    }
    unused.erase(spec.name);
  }
  if (!unused.empty()) {
    refuse_weights(where, str("the weight ", unused.begin()->first, " [", join(unused.begin()->second),
                              "] has no place in the model"));
  }
}

void write_weights(const comm::MpiGroup& group, const std::string& path, const CheckpointInfo& info,
                   const NamedWeights& weights) {
  std::vector<data::Hdf5DatasetSpec> specs;
  for (const auto& [name, values] : weights) {
    specs.push_back({dataset_path(kParametersGroup, name),
                     values.sizes().vec(),
                     values.scalar_type(),
                     {{kChecksumAttribute, checksum_text(values)}}});
  }
  data::Hdf5Writer writer(group, path, std::move(specs), info_attributes(info), data::Hdf5Seal::kMetadata);
  comm::agreed_on_rank_0(group, [&] {
    for (const auto& [name, values] : weights) {
      writer.write(dataset_path(kParametersGroup, name), std::vector<int64_t>(values.sizes().size(), 0), values);
    }
  });
  writer.finish();
}

size_t export_weights(const CheckpointReader& checkpoint, const std::string& path, WeightNames names,
                      at::ScalarType type) {
  const VitOptions options = model_from_json(checkpoint.info().model);
  const std::string why_not = no_counterpart(names, options);
  if (!why_not.empty()) {
    throw Error(ErrorClass::kUsage,
                str(checkpoint.path(), " has no counterpart under the names of ",
                    weight_names_words()[static_cast<size_t>(names)], ": ", why_not),
                "choose other --names; timm's fit every model");
  }
  WeightShapes shapes;
  for (const std::string& name : checkpoint.parameter_names()) {
    shapes[name] = checkpoint.find(dataset_path(kParametersGroup, name))->shape;
  }
  check_weights(options, shapes, checkpoint.path());
  std::vector<const CheckpointTensor*> tensors;
  std::vector<SafetensorsItem> items;
  for (const auto& spec : model::parameter_specs(options, {0, options.num_units()}, 0, 0, 1)) {
    tensors.push_back(checkpoint.find(dataset_path(kParametersGroup, spec.name)));
    items.push_back({foreign_name(names, spec.name), spec.global_shape, type});
  }
  Progress progress("reading " + checkpoint.path(), std::ssize(items));
  const CheckpointInfo& info = checkpoint.info();
  // "format" is what PyTorch's own tools look for.
  const std::map<std::string, std::string> metadata = {{"format", "pt"},
                                                       {kModelKey, info.model},
                                                       {kDataKey, training_data_json(info)},
                                                       {"vit_hybrid.step", str(info.step)}};
  write_safetensors(path, items, metadata, [&](size_t i) {
    progress.add();
    return converted(read_verified(checkpoint, *tensors[i]), type, place_of(checkpoint, *tensors[i]));
  });
  return items.size();
}

ForeignWeights read_foreign_weights(const std::string& path, WeightNames names) {
  const SafetensorsReader file(path);
  const auto& entries = file.header().tensors;
  const bool is_double = !entries.empty() && std::all_of(entries.begin(), entries.end(),
                                                         [](const auto& entry) { return entry.type == "F64"; });
  ForeignWeights foreign;
  for (const SafetensorsEntry& entry : entries) {
    const std::string name = our_name(names, entry.name);
    if (name.empty()) {
      throw Error(ErrorClass::kBadData,
                  str(path, ": the tensor '", entry.name, "' has no place in a ViT under the names of ",
                      weight_names_words()[static_cast<size_t>(names)]),
                  "choose other --names, or take the tensor out of the file");
    }
    const at::Tensor values = file.read(entry).to(is_double ? at::kDouble : at::kFloat).contiguous();
    if (!foreign.weights.emplace(name, values).second) {
      throw Error(ErrorClass::kBadData, str(path, ": two tensors are the weight ", name));
    }
  }
  const auto& metadata = file.header().metadata;
  if (const auto found = metadata.find(kModelKey); found != metadata.end()) {
    foreign.model = model_from_json(found->second);
  }
  if (const auto found = metadata.find(kDataKey); found != metadata.end()) {
    foreign.data = training_data_of(found->second, path);
  }
  return foreign;
}

}  // namespace vit_hybrid::train
