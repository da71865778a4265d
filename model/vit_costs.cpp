// How each parameter is drawn; sums over the blocks.
#include "model/vit_costs.h"

#include <ATen/OpMathType.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>

#include "src/base/error.h"

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
    const int64_t patch = options_.patch_size;
    const double half_width = 1.0 / std::sqrt(static_cast<double>(options_.in_channels * patch * patch));
    const Distribution uniform{Distribution::Kind::kUniform, half_width, 0.0};
    whole("patch_embed.proj.weight", {dim, options_.in_channels, patch, patch}, uniform, DecayGroup::kMatrix);
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
      const int64_t patch = options_.patch_size;
      whole("head.weight", {options_.out_channels * patch * patch, dim}, weight, DecayGroup::kMatrix);
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

double product(std::initializer_list<int64_t> factors) {
  double result = 1.0;
  for (const int64_t factor : factors) {
    result *= static_cast<double>(factor);
  }
  return result;
}

double embedding_cost(const VitOptions& options) {
  const int64_t patches = options.grid_height() * options.grid_width();
  return product({2, patches, options.in_channels, options.patch_size, options.patch_size, options.embed_dim});
}

// qkv and projection, the two products of attention, fc1 and fc2.
double block_cost(const VitOptions& options) {
  const int64_t tokens = options.num_tokens();
  const int64_t dim = options.embed_dim;
  return product({8, tokens, dim, dim}) + product({4, tokens, tokens, dim}) +
         product({4, tokens, dim, options.mlp_hidden});
}

double head_cost(const VitOptions& options) {
  if (options.task == Task::kClassify) {
    return product({2, options.embed_dim, options.num_classes});
  }
  return product(
      {2, options.num_tokens(), options.embed_dim, options.out_channels, options.patch_size, options.patch_size});
}

// Bytes a token of the parts of a block on the rank that has most.
struct BlockBytes {
  BlockBytes(const VitOptions& options, int tensor_size, at::ScalarType type)
      : size(static_cast<int64_t>(at::elementSize(type))),
        number(static_cast<int64_t>(at::elementSize(at::toOpMathType(type)))),
        dim(options.embed_dim * size),
        heads(Partition(options.num_heads, tensor_size).largest()),
        attention(heads * options.head_dim() * size),
        hidden(Partition(options.mlp_hidden, tensor_size).largest() * size),
        output_mask(options.dropout > 0.0 ? options.embed_dim : 0),
        hidden_mask(options.dropout > 0.0 ? hidden / size : 0) {}

  int64_t kept(Recompute recompute) const {
    if (recompute == Recompute::kFull) {
      return dim;
    }
    const int64_t again = recompute == Recompute::kSelective ? 3 * attention + hidden : 0;
    return 4 * dim + 4 * attention + 2 * hidden + (4 + heads) * number + 2 * output_mask + hidden_mask - again;
  }

  // What its backward takes at most beside what it keeps then, which with kFull is what it keeps without recompute.
  int64_t working(Recompute recompute) const {
    const bool again = recompute == Recompute::kSelective;
    // fc2: the gradients of the block's output, of its own output and of its input. Later GELU and fc1: the first,
    // those of GELU's output and input, and of fc1's input, beside GELU's input if that is computed again; GELU's
    // output is gone.
    const int64_t fc2 = 2 * dim + hidden - output_mask;
    const int64_t gelu = 2 * dim + hidden + (again ? hidden : 0) - output_mask - hidden_mask;
    // Attention: the gradients of the first sum, of its output, and of qkv; all that the MLP kept is gone, and the sum.
    const int64_t gone = 2 * dim + (again ? 1 : 2) * hidden;
    // With kFull the gradient of the block's output stays outside of the graph that was made again.
    const int64_t outside = recompute == Recompute::kFull ? dim : 0;
    const int64_t core = dim + 4 * attention + (again ? 3 * attention : 0) - gone + outside;
    return std::max({fc2, gelu, core});
  }

  int64_t size;
  int64_t number;  // bytes of a statistic
  int64_t dim;
  int64_t heads;
  int64_t attention;
  int64_t hidden;
  int64_t output_mask;  // of dropout after fc2, and as much after the projection
  int64_t hidden_mask;
};

struct HeadBytes {
  int64_t kept = 0;
  int64_t working = 0;  // beside what was kept, most of it in the loss
};

// Of a sample.
HeadBytes head_bytes(const VitOptions& options, const BlockBytes& block) {
  if (options.task == Task::kClassify) {
    return {2 * block.dim + 3 * options.num_classes * block.number, options.num_classes * block.number};
  }
  const int64_t prediction = options.out_channels * options.image_height * options.image_width * block.size;
  const int64_t row = block.dim * options.num_tokens();
  // The loss's gradient beside the prediction, or the head's input's gradient in its stead.
  return {2 * row + 2 * block.number * options.num_tokens() + prediction, std::max(prediction, row)};
}

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

std::vector<double> unit_costs(const VitOptions& options) {
  std::vector<double> costs(static_cast<size_t>(options.num_units()), block_cost(options));
  costs.front() = embedding_cost(options);
  costs.back() = head_cost(options);
  return costs;
}

double train_flops_per_sample(const VitOptions& options) {
  const auto costs = unit_costs(options);
  // The gradient of the image is not computed: the embedding's backward has one product, not two.
  return 3.0 * std::accumulate(costs.begin() + 1, costs.end(), 0.0) + 2.0 * costs.front();
}

int64_t kept_bytes_per_token(const VitOptions& options, int tensor_size, Recompute recompute, at::ScalarType type) {
  return BlockBytes(options, tensor_size, type).kept(recompute);
}

int64_t activation_bytes(const VitOptions& options, Range units, int tensor_size, int64_t micro_batch,
                         Recompute recompute, at::ScalarType type, const HeldMicroBatches& held) {
  const BlockBytes block(options, tensor_size, type);
  const int64_t tokens = options.num_tokens();
  const int64_t blocks =
      std::max<int64_t>(0, std::min(units.end, options.depth + 1) - std::max<int64_t>(units.begin, 1));
  int64_t kept = blocks * tokens * block.kept(recompute);
  if (units.begin == 0 && options.dropout > 0.0) {
    kept += tokens * options.embed_dim;  // a byte an element
  }
  int64_t working = 0;
  if (blocks > 0) {
    const bool is_full = recompute == Recompute::kFull;
    working = tokens * (block.working(recompute) + (is_full ? block.kept(Recompute::kNone) - block.dim : 0));
  }
  if (units.end == options.num_units()) {
    const HeadBytes head = head_bytes(options, block);
    kept += head.kept;
    working = std::max(head.working, working - head.kept);  // what the head kept is gone when a block's backward runs
  }
  return micro_batch * (held.in_flight * kept + working + held.received_early * tokens * block.dim);
}

}  // namespace vit_hybrid::model
