// Loading of weights: every rank reads its boxes, and together they check the sums.
#include "src/checkpoint/model_state.h"

#include <string>
#include <vector>

#include "src/base/error.h"
#include "src/base/progress.h"
#include "src/base/text.h"
#include "src/checkpoint/agreed_over.h"
#include "src/checkpoint/slice_reader.h"

namespace vit_hybrid::train {

namespace {

using tensor::ParameterSpec;

std::string options_of(const CheckpointReader& checkpoint) {
  return str("the checkpoint's model is ", checkpoint.info().model);
}

// The model option that a dim of a parameter follows.
std::string options_behind(const std::string& name) {
  if (name == "pos_embed") {
    return "--image-size, --patch-size, --pooling or --embed-dim";
  }
  if (name.starts_with("patch_embed.")) {
    return "--in-channels, --patch-size or --embed-dim";
  }
  if (name.starts_with("head.")) {
    return "--task, --out-channels, --num-classes, --patch-size or --embed-dim";
  }
  return name.find(".mlp.") != std::string::npos ? "--mlp-hidden or --embed-dim" : "--embed-dim";
}

void check_fit(const CheckpointReader& checkpoint, const ParameterSpec& spec) {
  const CheckpointTensor* const stored = checkpoint.find(dataset_path(kParametersGroup, spec.name));
  if (stored == nullptr) {
    throw Error(ErrorClass::kUsage,
                str(checkpoint.path(), " has no parameter ", spec.name, " (", join(spec.global_shape, " x "),
                    ") of this model: --task, --depth or --pooling differ"),
                options_of(checkpoint));
  }
  if (stored->shape != spec.global_shape) {
    throw Error(ErrorClass::kUsage,
                str("the parameter ", spec.name, " is ", join(stored->shape, " x "), " in ", checkpoint.path(), " and ",
                    join(spec.global_shape, " x "), " in this model: ", options_behind(spec.name), " differ"),
                options_of(checkpoint));
  }
}

std::vector<std::string> parameter_names(const CheckpointReader& checkpoint) {
  const std::string prefix = dataset_path(kParametersGroup, "");
  std::vector<std::string> names;
  for (const CheckpointTensor& entry : checkpoint.tensors()) {
    if (entry.path.starts_with(prefix)) {
      names.push_back(entry.path.substr(prefix.size()));
    }
  }
  return names;
}

void refuse_unheld(const CheckpointReader& checkpoint, const std::vector<std::string>& names,
                   const SliceReader& reader) {
  for (const std::string& name : names) {
    if (!reader.is_held(name)) {
      const CheckpointTensor& entry = *checkpoint.find(dataset_path(kParametersGroup, name));
      throw Error(ErrorClass::kUsage,
                  str(checkpoint.path(), " has a parameter ", entry.path, " (", join(entry.shape, " x "),
                      ") that this model has not: --task, --depth or --pooling differ"),
                  options_of(checkpoint));
    }
  }
}

}  // namespace

void load_parameters(const CheckpointReader& checkpoint, const std::vector<ParameterSpec>& specs,
                     tensor::ParameterWriter& parameters, comm::Communicator& model, c10::Device device) {
  agreed_over(model, device, [&] {
    for (const ParameterSpec& spec : specs) {
      check_fit(checkpoint, spec);
    }
  });
  const std::vector<std::string> names = parameter_names(checkpoint);
  SliceReader reader(checkpoint, names, specs, model, device);
  refuse_unheld(checkpoint, names, reader);
  Progress progress("reading the weights of " + checkpoint.path(), std::ssize(specs));
  agreed_over(model, device, [&] {
    for (size_t i = 0; i < specs.size(); ++i) {
      parameters.write(static_cast<int>(i), [&](const at::Tensor& values) { reader.read(specs[i], values); });
      progress.add();
    }
  });
  reader.verify();
}

}  // namespace vit_hybrid::train
