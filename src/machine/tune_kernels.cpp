// The list of a ViT's products and attentions, and their measuring on each GPU.
#include "src/machine/tune_kernels.h"

#include <cmath>
#include <set>

#include "parallel/comm/agreement.h"
#include "parallel/comm/operation.h"
#include "src/base/text.h"
#include "src/base/timer.h"
#include "src/kernels/gemm/device_products.h"

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

using kernels::KernelTable;

std::string begin_kernel_table(const std::string& machine, const std::vector<std::string>& problems,
                               const std::string& saved, SavedKernels use) {
  kernels::KernelTable& table = kernels::kernel_table();
  table = kernels::KernelTable(machine);
  if (use == SavedKernels::kMeasureAgain) {
    return saved.empty() ? "" : ", the saved ones given up by --retune";
  }
  const kernels::KernelTable of_start = kernels::KernelTable::parse(saved);
  const bool is_other = table.adopt(of_start, problems) == kernels::KernelTable::Adopted::kOtherMachine;
  return is_other ? str(", the saved ones were for ", of_start.machine()) : "";
}

void share_kernels(TuningReport& report, const comm::MpiGroup& world) {
  const std::string choices = world.broadcast(world.rank() == 0 ? kernels::kernel_table().text() : "", 0);
  report.text = world.broadcast(report.text, 0);
  report.origin = world.broadcast(report.origin, 0);
  world.broadcast(&report.num_measured, sizeof(report.num_measured), 0);
  world.broadcast(&report.num_saved, sizeof(report.num_saved), 0);
  world.broadcast(&report.seconds, sizeof(report.seconds), 0);
  kernels::kernel_table() = kernels::KernelTable::parse(choices);
}

namespace {

using kernels::KernelTable;

// On one rank: the table of all choices, left in kernel_table(), and what was done.
TuningReport choose(const DeviceProblems& problems, const std::string& saved, SavedKernels use, c10::Device device) {
  const Timer timer;
  kernels::KernelTable& table = kernels::kernel_table();
  const std::string machine =
      kernels::machine_text(kernels::device_traits(device), kernels::device_kernel_options().order);
  const std::string of_saved = begin_kernel_table(machine, problems.names_with_parts(), saved, use);
  TuningReport report;
  report.num_saved = static_cast<int>(table.choices().size());
  for (const auto& product : problems.products) {
    comm::note_work();
    if (table.find(product.name()) == nullptr) {
      kernels::measure_product(product, device);
    }
  }
  for (const auto& attention : problems.attentions) {
    comm::note_work();
    if (table.find(attention.name()) == nullptr) {
      kernels::measure_attention(attention, device);
    }
  }
  kernels::release_unused_device_memory();
  report.num_measured = static_cast<int>(table.choices().size()) - report.num_saved;
  report.seconds = timer.seconds();
  report.text = str("kernels of ", report.num_measured, " shapes measured on rank 0 in ",
                    std::round(10.0 * report.seconds) / 10.0, " s",
                    report.num_saved > 0 ? str(", ", report.num_saved, " as saved") : "", of_saved);
  return report;
}

}  // namespace

TuningReport tune_kernels(const DeviceProblems& problems, const std::string& saved, SavedKernels use,
                          c10::Device device, const comm::MpiGroup& world) {
  TuningReport report;
  comm::agreed_on_rank_0(world, [&] { report = choose(problems.distinct(), saved, use, device); });
  share_kernels(report, world);
  kernels::forget_product_plans();
  return report;
}

std::string fixed_order_cost_text(const DeviceProblems& problems) {
  const double cost = kernels::kernel_table().cost(problems.names());
  if (kernels::device_kernel_options().order == kernels::SumOrder::kAny || kernels::kernel_table().choices().empty()) {
    return {};
  }
  return str("--deterministic: products and attention take ", std::round(1000.0 * cost) / 10.0,
             " % longer than with the fastest kernels");
}

}  // namespace vit_hybrid::train
