// The list of a ViT's products and attentions.
#include "src/machine/device_problems.h"

#include <set>

namespace vit_hybrid::train {

namespace {

using kernels::ProductExtra;
using kernels::ProductKind;

/// Who adds the bias and its gradient.
enum class Bias { kNone, kInProduct, kGradientElsewhere };
/// The image needs no gradient.
enum class InputGradient { kYes, kNo };

class Collector {
 public:
  Collector(const ProductTypes& types, DeviceProblems& problems) : types_(types), problems_(problems) {}

  void linear(int64_t rows, int64_t inputs, int64_t outputs, Bias bias, InputGradient input_gradient) {
    if (rows == 0 || inputs == 0 || outputs == 0) {
      return;
    }
    const bool has_bias = bias != Bias::kNone;
    add(kernels::ProductKind::kForward, has_bias ? kernels::ProductExtra::kBias : kernels::ProductExtra::kNone, rows,
        outputs, inputs);
    if (input_gradient == InputGradient::kYes) {
      add(kernels::ProductKind::kBackwardInput, kernels::ProductExtra::kNone, rows, outputs, inputs);
    }
    const bool is_joined = bias == Bias::kInProduct && kernels::may_fuse_bias_gradient(types_.gradient);
    add(kernels::ProductKind::kWeightGradient,
        is_joined ? kernels::ProductExtra::kBiasGradient : kernels::ProductExtra::kNone, rows, outputs, inputs);
  }

 private:
  void add(kernels::ProductKind kind, kernels::ProductExtra extra, int64_t rows, int64_t outputs, int64_t inputs) {
    auto problem = kernels::product_problem(kind, extra, rows, outputs, inputs, types_.compute);
    problem.fp32 = types_.compute == at::kFloat ? types_.fp32 : kernels::Fp32Products::kExact;
    if (kind == kernels::ProductKind::kWeightGradient) {
      problem.result = types_.gradient;
    }
    problems_.products.push_back(problem);
  }

  ProductTypes types_;
  DeviceProblems& problems_;
};

void add_block(const model::VitOptions& options, int tensor_rank, int tensor_size, int64_t num_samples,
               const ProductTypes& types, DeviceProblems& problems) {
  Collector collector(types, problems);
  const int64_t rows = num_samples * options.num_tokens(), dim = options.embed_dim;
  const int64_t heads = Partition(options.num_heads, tensor_size).part(tensor_rank).size();
  const int64_t hidden = Partition(options.mlp_hidden, tensor_size).part(tensor_rank).size();
  const int64_t width = heads * options.head_dim();
  collector.linear(rows, dim, 3 * width, Bias::kInProduct, InputGradient::kYes);
  if (options.attention_dropout == 0.0 && heads > 0) {
    problems.attentions.push_back({num_samples, options.num_tokens(), heads, options.head_dim(), types.compute});
  }
  // The biases of row-parallel linears are added after the sum over the ranks, and their gradients must have the same
  // bits on all of them: a kernel of its own adds them up. One rank has no such sum. The gradient of fc1's bias comes
  // with GELU's backward.
  const Bias row_parallel = tensor_size == 1 ? Bias::kInProduct : Bias::kNone;
  collector.linear(rows, width, dim, row_parallel, InputGradient::kYes);
  collector.linear(rows, dim, hidden, Bias::kGradientElsewhere, InputGradient::kYes);
  collector.linear(rows, hidden, dim, row_parallel, InputGradient::kYes);
}

}  // namespace

void DeviceProblems::add(const DeviceProblems& more) {
  products.insert(products.end(), more.products.begin(), more.products.end());
  attentions.insert(attentions.end(), more.attentions.begin(), more.attentions.end());
}

DeviceProblems DeviceProblems::distinct() const {
  DeviceProblems result;
  std::set<std::string> seen;
  for (const auto& product : products) {
    if (seen.insert(product.name()).second) {
      result.products.push_back(product);
    }
  }
  for (const auto& attention : attentions) {
    if (seen.insert(attention.name()).second) {
      result.attentions.push_back(attention);
    }
  }
  return result;
}

std::vector<std::string> DeviceProblems::names() const {
  std::vector<std::string> names;
  for (const auto& product : products) {
    names.push_back(product.name());
  }
  for (const auto& attention : attentions) {
    names.push_back(attention.name());
  }
  return names;
}

std::vector<std::string> DeviceProblems::names_with_parts() const {
  std::vector<std::string> with_parts = names();
  for (const auto& product : products) {
    with_parts.push_back(product.without_extra().name());
  }
  return with_parts;
}

DeviceProblems device_problems(const model::VitOptions& options, Range units, int tensor_rank, int tensor_size,
                               int64_t num_samples, const ProductTypes& types) {
  DeviceProblems problems;
  Collector collector(types, problems);
  const int64_t dim = options.embed_dim, patch = options.patch_size * options.patch_size;
  const int64_t patches = num_samples * options.grid_height() * options.grid_width();
  for (int64_t unit = units.begin; unit < units.end; ++unit) {
    if (unit == 0) {
      collector.linear(patches, options.in_channels * patch, dim, Bias::kInProduct, InputGradient::kNo);
    } else if (unit <= options.depth) {
      add_block(options, tensor_rank, tensor_size, num_samples, types, problems);
    } else if (options.task == model::Task::kForecast) {
      collector.linear(patches, dim, options.out_channels * patch, Bias::kNone, InputGradient::kYes);
    } else {
      collector.linear(num_samples, dim, options.num_classes, Bias::kInProduct, InputGradient::kYes);
    }
  }
  return problems;
}

DeviceProblems device_problems_of_mesh(const model::VitOptions& options, int tensor_size,
                                       const std::vector<int64_t>& micro_batch_sizes, const ProductTypes& types) {
  DeviceProblems problems;
  for (const int64_t num_samples : micro_batch_sizes) {
    for (int rank = 0; rank < tensor_size; ++rank) {
      problems.add(device_problems(options, {0, options.num_units()}, rank, tensor_size, num_samples, types));
    }
  }
  return problems.distinct();
}

}  // namespace vit_hybrid::train
