// The shape, the cut over the tensor ranks and the initial distribution of each parameter, unit by unit.
#include "model/vit_parameters.h"

#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <utility>

#include "src/base/error.h"
#include "src/base/text.h"

namespace vit_hybrid::model {

namespace {

using tensor::DecayGroup;
using tensor::Distribution;
using tensor::ParameterSpec;

Distribution constant(double value) {
  return {Distribution::Kind::kConstant, value, 0.0};
}

// docs/workload.md, "Model": normal, truncated at +-2.0 absolute (at +-100 standard deviations of 0.02).
Distribution truncated_normal(double deviation) {
  return {Distribution::Kind::kTruncatedNormal, deviation, 2.0};
}

constexpr double kWeightDeviation = 0.02;
constexpr double kClassTokenDeviation = 1e-6;  // timm's default

// Appends the specs of the units one after the other.
class SpecList {
 public:
  SpecList(const VitOptions& options, int tensor_rank, int tensor_size)
      : options_(options),
        heads_(Partition(options.num_heads, tensor_size).part(tensor_rank)),
        hidden_(Partition(options.mlp_hidden, tensor_size).part(tensor_rank)) {}

  void add_unit(int64_t unit) {
    if (unit == 0) {
      add_patch_embedding();
    } else if (unit == options_.depth + 1) {
      add_head();
    } else {
      add_block(unit - 1);
    }
  }

  std::vector<ParameterSpec> take(int stage) {
    for (auto& spec : specs_) {
      spec.stage = stage;
    }
    return std::move(specs_);
  }

 private:
  void add_patch_embedding() {
    const int64_t dim = options_.embed_dim;
    const double half_width = 1.0 / std::sqrt(static_cast<double>(options_.input_grid().num_features()));
    const Distribution uniform{Distribution::Kind::kUniform, half_width, 0.0};
    whole("patch_embed.proj.weight", {dim, options_.in_channels, options_.patch_height, options_.patch_width}, uniform,
          DecayGroup::kMatrix);
    whole("patch_embed.proj.bias", {dim}, uniform, DecayGroup::kVector);
    if (options_.has_class_token()) {
      whole("cls_token", {1, 1, dim}, truncated_normal(kClassTokenDeviation), DecayGroup::kVector);
    }
    whole("pos_embed", {1, options_.num_tokens(), dim}, truncated_normal(kWeightDeviation), DecayGroup::kVector);
  }

  void add_block(int64_t layer) {
    const std::string prefix = str("blocks.", layer, ".");
    const int64_t dim = options_.embed_dim;
    const int64_t hidden = options_.mlp_hidden;
    const Range features{heads_.begin * options_.head_dim(), heads_.end * options_.head_dim()};
    add_norm(prefix + "norm1");
    cut(prefix + "attn.qkv.weight", {3 * dim, dim}, 0, features, 3);
    cut(prefix + "attn.qkv.bias", {3 * dim}, 0, features, 3);
    cut(prefix + "attn.proj.weight", {dim, dim}, 1, features, 1);
    whole(prefix + "attn.proj.bias", {dim}, constant(0.0), DecayGroup::kVector);
    add_norm(prefix + "norm2");
    cut(prefix + "mlp.fc1.weight", {hidden, dim}, 0, hidden_, 1);
    cut(prefix + "mlp.fc1.bias", {hidden}, 0, hidden_, 1);
    cut(prefix + "mlp.fc2.weight", {dim, hidden}, 1, hidden_, 1);
    whole(prefix + "mlp.fc2.bias", {dim}, constant(0.0), DecayGroup::kVector);
  }

  void add_head() {
    const int64_t dim = options_.embed_dim;
    const Distribution weight = truncated_normal(kWeightDeviation);
    add_norm(final_norm_name(options_));
    if (options_.task == Task::kForecast) {
      whole("head.weight", {options_.output_grid().num_features(), dim}, weight, DecayGroup::kMatrix);
      return;
    }
    whole("head.weight", {options_.num_classes, dim}, weight, DecayGroup::kMatrix);
    whole("head.bias", {options_.num_classes}, constant(0.0), DecayGroup::kVector);
  }

  void add_norm(const std::string& name) {
    whole(name + ".weight", {options_.embed_dim}, constant(1.0), DecayGroup::kVector);
    whole(name + ".bias", {options_.embed_dim}, constant(0.0), DecayGroup::kVector);
  }

  void whole(std::string name, tensor::Shape shape, Distribution initial, DecayGroup decay) {
    specs_.push_back(tensor::replicated(std::move(name), std::move(shape), initial, decay));
  }

  // Matrices are drawn from the normal distribution and decay; the biases beside them are zero.
  void cut(std::string name, tensor::Shape shape, int dim, Range part, int groups) {
    const bool matrix = shape.size() > 1;
    specs_.push_back(tensor::sharded(std::move(name), std::move(shape), dim, part.begin, part.end, groups,
                                     matrix ? truncated_normal(kWeightDeviation) : constant(0.0),
                                     matrix ? DecayGroup::kMatrix : DecayGroup::kVector));
  }

  const VitOptions& options_;
  Range heads_;
  Range hidden_;
  std::vector<ParameterSpec> specs_;
};

}  // namespace

std::string final_norm_name(const VitOptions& options) {
  const bool pooled_first = options.task == Task::kClassify && options.pooling == Pooling::kMean;
  return pooled_first ? "fc_norm" : "norm";
}

std::vector<ParameterSpec> parameter_specs(const VitOptions& options, Range units, int stage, int tensor_rank,
                                           int tensor_size) {
  VH_ASSERT(units.begin >= 0 && units.end <= options.num_units(),
            str("units [", units.begin, ", ", units.end, ") of ", options.num_units()));
  SpecList list(options, tensor_rank, tensor_size);
  for (int64_t unit = units.begin; unit < units.end; ++unit) {
    list.add_unit(unit);
  }
  return list.take(stage);
}

std::vector<int64_t> slice_sizes(const VitOptions& options, Range units, int tensor_rank, int tensor_size) {
  const auto of_unit = [&](int64_t unit) {
    std::vector<int64_t> sizes;
    for (const auto& spec : parameter_specs(options, {unit, unit + 1}, 0, tensor_rank, tensor_size)) {
      sizes.push_back(tensor::num_elements(spec.local_shape));
    }
    return sizes;
  };
  std::vector<int64_t> sizes, of_block;
  for (int64_t unit = units.begin; unit < units.end; ++unit) {
    const bool is_block = unit > 0 && unit <= options.depth;
    if (is_block && of_block.empty()) {
      of_block = of_unit(unit);
    }
    const std::vector<int64_t> own = is_block ? of_block : of_unit(unit);
    sizes.insert(sizes.end(), own.begin(), own.end());
  }
  return sizes;
}

double num_slice_parameters(const VitOptions& options, int tensor_rank, int tensor_size) {
  const auto of_unit = [&](int64_t unit) {
    double count = 0.0;
    for (const auto& spec : parameter_specs(options, {unit, unit + 1}, 0, tensor_rank, tensor_size)) {
      count += std::accumulate(spec.local_shape.begin(), spec.local_shape.end(), 1.0, std::multiplies<double>());
    }
    return count;
  };
  // All blocks are alike.
  return of_unit(0) + static_cast<double>(options.depth) * of_unit(1) + of_unit(options.depth + 1);
}

int64_t num_parameters(const VitOptions& options) {
  const double count = num_slice_parameters(options, 0, 1);
  return count < 0x1p62 ? static_cast<int64_t>(count) : std::numeric_limits<int64_t>::max();
}

}  // namespace vit_hybrid::model
