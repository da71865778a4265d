// Export to and import from safetensors files.
#include "src/checkpoint/exchange.h"

#include <ATen/ops/isfinite.h>

#include <algorithm>

#include "src/base/error.h"
#include "src/base/progress.h"
#include "src/base/text.h"
#include "src/checkpoint/model_json.h"
#include "src/checkpoint/model_of_weights.h"
#include "src/checkpoint/safetensors.h"
#include "src/checkpoint/verify.h"

namespace vit_hybrid::train {

namespace {

constexpr const char* kModelKey = "vit_hybrid.model";
constexpr const char* kDataKey = "vit_hybrid.data";

WeightShapes shapes_of(const CheckpointReader& checkpoint) {
  const std::string prefix = dataset_path(kParametersGroup, "");
  WeightShapes shapes;
  for (const CheckpointTensor& tensor : checkpoint.tensors()) {
    if (tensor.path.starts_with(prefix)) {
      shapes[tensor.path.substr(prefix.size())] = tensor.shape;
    }
  }
  return shapes;
}

at::Tensor converted(const at::Tensor& values, at::ScalarType type, const std::string& where) {
  const at::Tensor out = values.to(type).contiguous();
  const auto num_finite = [](const at::Tensor& tensor) { return at::isfinite(tensor).sum().item<int64_t>(); };
  if (num_finite(out) != num_finite(values)) {
    throw Error(ErrorClass::kUsage, str(where, " has values beyond the range of ", c10::toString(type)),
                "choose another --dtype: bf16 has the range of fp32");
  }
  return out;
}

std::map<std::string, std::string> metadata_of(const CheckpointInfo& info) {
  // "format" is what PyTorch's own tools look for.
  return {{"format", "pt"},
          {kModelKey, info.model},
          {kDataKey, training_data_json(info)},
          {"vit_hybrid.step", str(info.step)}};
}

std::string unknown_name(const SafetensorsReader& file, WeightNames names, const std::string& name) {
  return str(file.path(), ": the tensor '", name, "' has no place in a ViT under the names of ",
             weight_names_words()[static_cast<size_t>(names)]);
}

}  // namespace

size_t export_weights(const CheckpointReader& checkpoint, const std::string& path, WeightNames names,
                      at::ScalarType type) {
  const model::VitOptions options = model_from_json(checkpoint.info().model);
  const std::string why_not = no_counterpart(names, options);
  if (!why_not.empty()) {
    throw Error(ErrorClass::kUsage,
                str(checkpoint.path(), " has no counterpart under the names of ",
                    weight_names_words()[static_cast<size_t>(names)], ": ", why_not),
                "choose other --names; timm's fit every model");
  }
  check_weights(options, shapes_of(checkpoint), checkpoint.path());
  std::vector<const CheckpointTensor*> tensors;
  std::vector<SafetensorsItem> items;
  for (const auto& spec : model::parameter_specs(options, {0, options.num_units()}, 0, 0, 1)) {
    tensors.push_back(checkpoint.find(dataset_path(kParametersGroup, spec.name)));
    items.push_back({foreign_name(names, spec.name), spec.global_shape, type});
  }
  Progress progress("reading " + checkpoint.path(), std::ssize(items));
  write_safetensors(path, items, metadata_of(checkpoint.info()), [&](size_t i) {
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
      throw Error(ErrorClass::kBadData, unknown_name(file, names, entry.name),
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
