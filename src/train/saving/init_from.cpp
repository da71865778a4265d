// --init-from: what fits is read, positions are resized, the rest stays or is refused.
#include "src/train/saving/init_from.h"

#include <ATen/ops/upsample_bicubic2d.h>

#include <algorithm>
#include <optional>

#include "model/vit_parameters.h"
#include "parallel/comm/agreement.h"
#include "src/base/error.h"
#include "src/base/memory_tracker.h"
#include "src/base/text.h"
#include "src/checkpoint/format.h"
#include "src/checkpoint/slice_reader.h"
#include "src/checkpoint/verify.h"

namespace vit_hybrid::train {

namespace {

using tensor::ParameterSpec;

constexpr const char* kPositions = "pos_embed";
constexpr const char* kSameModel = "give the same model options as the checkpoint's training";

TokenGrid grid_of(const model::VitOptions& options) {
  return {options.input_grid().rows(), options.input_grid().columns()};
}

std::string grid_text(const TokenGrid& grid) {
  return str(grid.height, " x ", grid.width);
}

// What is at the model's two ends belongs to its task rather than to what it has learnt.
bool may_stay_initial(const std::string& name) {
  return name.starts_with("head.") || name.starts_with("norm.") || name.starts_with("fc_norm.") || name == "cls_token";
}

class Loader {
 public:
  Loader(const CheckpointReader& checkpoint, const InitFromOptions& options)
      : checkpoint_(checkpoint),
        options_(options),
        stored_(model_from_json(checkpoint.info().model)),
        other_classes_(classes_difference(checkpoint.info(), options.class_names)) {}

  bool has_other_gelu() const { return stored_.gelu != options_.model.gelu; }

  bool fits(const ParameterSpec& spec) const {
    const CheckpointTensor* stored = find(spec);
    const bool is_elsewhere = spec.name == kPositions && grid_of(stored_) != grid_of(options_.model);
    const bool is_of_others = spec.name.starts_with("head.") && !other_classes_.empty();
    return stored != nullptr && stored->shape == spec.global_shape && !is_elsewhere && !is_of_others;
  }

  // A parameter of this model that the checkpoint does not have as it is.
  void check(const ParameterSpec& spec) const {
    if (fits(spec) || is_resizable(spec) || (options_.partial && may_stay_initial(spec.name))) {
      return;
    }
    const CheckpointTensor* stored = find(spec);
    if (stored != nullptr && stored->shape == spec.global_shape) {
      throw Error(ErrorClass::kUsage,
                  str("--init-from ", checkpoint_.path(), ": the parameter ", spec.name,
                      " is of other classes: ", other_classes_),
                  "give data whose classes are numbered as the checkpoint's, or --init-from-partial, which starts with "
                  "a new head");
    }
    const std::string theirs = stored == nullptr ? "is missing" : str("is ", join(stored->shape, " x "));
    const auto differences = model_differences(checkpoint_.info().model, options_.model);
    throw Error(ErrorClass::kUsage,
                str("--init-from ", checkpoint_.path(), ": the parameter ", spec.name, " ", theirs,
                    ", this model's is ", join(spec.global_shape, " x "), ": ", join(differences, "; ")),
                may_stay_initial(spec.name) ? "--init-from-partial starts with a new head beside the weights that fit"
                                            : kSameModel);
  }

  // What there is to say of a parameter that does not fit.
  std::string remark(const ParameterSpec& spec) const {
    return is_resizable(spec) ? str("positions resized from ", grid_text(grid_of(stored_)), " to ",
                                    grid_text(grid_of(options_.model)), " patches")
                              : str(spec.name, " keeps its initial values");
  }

  void load(const ParameterSpec& spec, const at::Tensor& slice, SliceReader& reader) const {
    if (fits(spec)) {
      reader.read(spec, slice);
    } else if (is_resizable(spec)) {
      load_positions(spec, slice);
    }
  }

 private:
  const CheckpointTensor* find(const ParameterSpec& spec) const {
    return checkpoint_.find(dataset_path(kParametersGroup, spec.name));
  }

  // Positions of as many features on another grid; a class token's is kept apart where both models have one.
  bool is_resizable(const ParameterSpec& spec) const {
    const CheckpointTensor* stored = find(spec);
    return spec.name == kPositions && stored != nullptr && stored->shape.size() == 3 &&
           stored->shape[1] == stored_.num_tokens() && stored->shape[2] == spec.global_shape[2] &&
           (options_.partial || stored_.has_class_token() == options_.model.has_class_token());
  }

  // Reads them whole: every new position is a mean of several.
  void load_positions(const ParameterSpec& spec, const at::Tensor& slice) const {
    const at::Tensor whole = read_verified(checkpoint_, *find(spec));
    const TokenGrid from = grid_of(stored_);
    const TokenGrid to = grid_of(options_.model);
    const int64_t from_token = stored_.has_class_token() ? 1 : 0;
    const int64_t to_token = options_.model.has_class_token() ? 1 : 0;
    if (from_token == 1 && to_token == 1) {
      slice.narrow(1, 0, 1).copy_(whole.narrow(1, 0, 1));
    }
    const at::Tensor grid = whole.narrow(1, from_token, from.height * from.width);
    slice.narrow(1, to_token, to.height * to.width).copy_(from == to ? grid : resize_positions(grid, from, to));
  }

  const CheckpointReader& checkpoint_;
  const InitFromOptions& options_;
  model::VitOptions stored_;
  std::string other_classes_;  // in which the data's differ; empty where they do not
};

void refuse_unused(const CheckpointReader& checkpoint, const InitFromOptions& options,
                   const std::vector<ParameterSpec>& specs) {
  const std::string prefix = dataset_path(kParametersGroup, "");
  for (const CheckpointTensor& stored : checkpoint.tensors()) {
    if (!stored.path.starts_with(prefix)) {
      continue;
    }
    const std::string name = stored.path.substr(prefix.size());
    const bool used = std::any_of(specs.begin(), specs.end(), [&](const auto& spec) { return spec.name == name; });
    if (!used && !(options.partial && may_stay_initial(name))) {
      throw Error(ErrorClass::kUsage,
                  str("--init-from ", checkpoint.path(), " has the parameter ", name,
                      ", this model has none: ", join(model_differences(checkpoint.info().model, options.model), "; ")),
                  may_stay_initial(name) ? "--init-from-partial leaves it out" : kSameModel);
    }
  }
}

// All parameters, whole: what fits is the same question on every rank.
std::vector<ParameterSpec> whole_specs(const model::VitOptions& model) {
  return model::parameter_specs(model, {0, model.num_units()}, 0, 0, 1);
}

}  // namespace

std::vector<std::string> init_from(const CheckpointReader& checkpoint, const InitFromOptions& options,
                                   const std::vector<ParameterSpec>& specs, tensor::ParameterWriter& parameters,
                                   const comm::MpiGroup& model_group) {
  const MemoryScope scope(MemoryClass::kWorkspaces);
  std::optional<Loader> loader;
  std::vector<std::string> remarks;
  std::vector<std::string> fitting;
  comm::agreed(model_group, [&] {
    loader.emplace(checkpoint, options);
    const auto all = whole_specs(options.model);
    refuse_unused(checkpoint, options, all);
    if (loader->has_other_gelu()) {
      const bool is_tanh = options.model.gelu == kernels::GeluKind::kTanh;
      remarks.push_back(str("the weights were trained with --gelu ", is_tanh ? "erf" : "tanh", ", and --gelu is ",
                            is_tanh ? "tanh" : "erf"));
    }
    for (const ParameterSpec& spec : all) {
      loader->check(spec);
      if (loader->fits(spec)) {
        fitting.push_back(spec.name);
      } else {
        remarks.push_back(loader->remark(spec));
      }
    }
  });
  SliceReader reader(checkpoint, fitting, specs, model_group);
  comm::agreed(model_group, [&] {
    for (size_t i = 0; i < specs.size(); ++i) {
      parameters.write(static_cast<int>(i), [&](const at::Tensor& values) { loader->load(specs[i], values, reader); });
    }
  });
  reader.verify();
  return remarks;
}

at::Tensor resize_positions(const at::Tensor& positions, TokenGrid from, TokenGrid to) {
  const int64_t features = positions.size(2);
  const at::Tensor grid =
      positions.to(at::kDouble).reshape({1, from.height, from.width, features}).permute({0, 3, 1, 2});
  const std::vector<int64_t> size = {to.height, to.width};
  const at::Tensor resized = at::upsample_bicubic2d(grid.contiguous(), size, /*align_corners=*/false);
  return resized.permute({0, 2, 3, 1}).reshape({1, to.height * to.width, features});
}

}  // namespace vit_hybrid::train
