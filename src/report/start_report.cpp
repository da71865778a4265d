// LayoutReport: the arithmetic of imbalance and of memory, and the lines about both. KernelReport: the dimensions of a
// ViT's products, rounded up, and the kernels that take them.
#include "src/report/start_report.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "model/vit_costs.h"
#include "model/vit_options.h"
#include "parallel/pipeline/schedule.h"
#include "src/base/device/gpu_survey.h"
#include "src/base/text.h"
#include "src/kernels/attention/attend.h"
#include "src/kernels/attention/device_attention.h"
#include "src/kernels/gemm/device_products.h"
#include "src/kernels/gemm/matmul.h"
#include "src/machine/device.h"
#include "src/machine/processor.h"
#include "src/plan/step_work.h"

namespace vit_hybrid::train {

namespace {

double balance_of(const std::vector<double>& loads) {
  const double sum = std::accumulate(loads.begin(), loads.end(), 0.0);
  const double largest = *std::max_element(loads.begin(), loads.end());
  return largest > 0.0 ? sum / (largest * static_cast<double>(loads.size())) : 1.0;
}

AxisBalance data_balance(const StepConfig& config) {
  const auto samples = shares_of(config.global_batch_size, config.parallel.dp);
  return {str("samples ", parts_text(samples), " of a step"), balance_of({samples.begin(), samples.end()})};
}

// FLOP of a block on each tensor rank: 8 N D^2 + 4 N^2 D go with the heads, 16 N D^2 (4 N D hidden) with the MLP.
AxisBalance tensor_balance(const model::VitOptions& model, int tensor_size) {
  const auto heads = shares_of(model.num_heads, tensor_size);
  const auto hidden = shares_of(model.mlp_hidden, tensor_size);
  const auto tokens = static_cast<double>(model.num_tokens());
  const auto dim = static_cast<double>(model.embed_dim);
  std::vector<double> loads;
  for (size_t i = 0; i < heads.size(); ++i) {
    const double share = static_cast<double>(heads[i]) / static_cast<double>(model.num_heads);
    loads.push_back(share * (8.0 * tokens * dim * dim + 4.0 * tokens * tokens * dim) +
                    4.0 * tokens * dim * static_cast<double>(hidden[i]));
  }
  return {str("heads ", parts_text(heads), ", MLP features ", parts_text(hidden)), balance_of(loads)};
}

// "embedding + blocks 0-2", "blocks 3-5 + head".
std::string units_text(Range units, int64_t depth) {
  std::vector<std::string> parts;
  if (units.begin == 0) {
    parts.push_back("embedding");
  }
  const int64_t first = std::max<int64_t>(units.begin, 1) - 1;
  const int64_t last = std::min(units.end, depth + 1) - 2;
  if (first == last) {
    parts.push_back(str("block ", first));
  } else if (first < last) {
    parts.push_back(str("blocks ", first, "-", last));
  }
  if (units.end == depth + 2) {
    parts.push_back("head");
  }
  return join(parts, " + ");
}

// Of more than eight stages the first and the last, which hold other things than blocks, and how many blocks the others
// have.
std::string stages_text(const std::vector<std::string>& texts, const std::vector<Range>& stages) {
  constexpr size_t kMostListed = 8;
  if (stages.size() <= kMostListed) {
    return join(texts, " | ");
  }
  std::vector<int64_t> inner;
  for (size_t i = 1; i + 1 < stages.size(); ++i) {
    inner.push_back(stages[i].size());
  }
  return str(texts.front(), " | stages of ", parts_text(inner), " blocks | ", texts.back());
}

AxisBalance pipeline_balance(const model::VitOptions& model, const std::vector<Range>& stages) {
  const auto costs = model::unit_costs(model);
  std::vector<double> loads;
  std::vector<std::string> texts;
  for (const Range& units : stages) {
    loads.push_back(std::accumulate(costs.begin() + units.begin, costs.begin() + units.end, 0.0));
    texts.push_back(units_text(units, model.depth));
  }
  return {stages_text(texts, stages), balance_of(loads)};
}

// Classes that hold less than this part are left alone.
constexpr double kWorthwhile = 0.1;

void add_for_activations(const StepConfig& config, std::vector<std::string>& options) {
  if (config.recompute == model::Recompute::kNone) {
    options.push_back("--recompute selective or full");
  } else if (config.recompute == model::Recompute::kSelective) {
    options.push_back("--recompute full");
  }
  if (config.parallel.micro_batch_size > 1) {
    options.push_back(str("a smaller --micro-batch-size (it is ", config.parallel.micro_batch_size, ")"));
  }
  if (config.parallel.pp > 1 && config.parallel.schedule == "gpipe") {
    options.push_back("--schedule 1f1b, which keeps fewer micro-batches");
  }
}

void add_for_data(const StepConfig& config, const DataConfig& data, std::vector<std::string>& options) {
  if (data.kind == DataKind::kBuiltin && config.is_forecast()) {  // other generated data are made batch by batch
    options.push_back(str("fewer --generated-samples and --generated-valid-samples (they are ", data.generated_samples,
                          " and ", data.generated_valid_samples, ")"));
  }
  if (data.prefetch_depth != 1) {
    const std::string depth = data.prefetch_depth > 0 ? str(data.prefetch_depth) : "auto";
    options.push_back("a smaller --prefetch-depth (it is " + depth + ")");
  }
  if (config.parallel.micro_batch_size > 1) {
    options.push_back(str("a smaller --micro-batch-size (it is ", config.parallel.micro_batch_size, ")"));
  }
}

void add_for_optimizer(const ParallelConfig& parallel, std::vector<std::string>& options) {
  if (parallel.zero > 0 && parallel.state_shards() < parallel.dp) {
    options.push_back(
        str("a larger --zero-shard-size (it is ", parallel.state_shards(), " of --dp ", parallel.dp, ")"));
  }
  options.push_back(str("more replicas (--dp is ", parallel.dp, "), which share the optimizer's state"));
}

void add_for_class(MemoryClass memory_class, const StepConfig& config, const DataConfig& data,
                   std::vector<std::string>& options) {
  switch (memory_class) {
    case MemoryClass::kParameters:
    case MemoryClass::kPackedWeights:
      return;  // --tp and --pp, which always count
    case MemoryClass::kGradients:
      if (config.precision.is_half() && config.precision.gradient == GradientType::kMaster) {
        options.push_back("--grad-dtype half");
      }
      return;
    case MemoryClass::kOptimizer:
      add_for_optimizer(config.parallel, options);
      return;
    case MemoryClass::kCommunication:
      options.push_back(config.parallel.bucket_mb > 0.0
                            ? str("a smaller --bucket-mb (it is ", config.parallel.bucket_mb, ")")
                            : "a smaller --bucket-mb (it is auto)");
      return;
    case MemoryClass::kData:
      return add_for_data(config, data, options);
    default:
      return add_for_activations(config, options);
  }
}

}  // namespace

std::string percent(double share) {
  return fixed_text(100.0 * share, 1) + " %";
}

std::vector<int64_t> shares_of(int64_t count, int parts, int64_t each) {
  std::vector<int64_t> shares;
  for (int i = 0; i < parts; ++i) {
    shares.push_back(Partition(count, parts).part(i).size() * each);
  }
  return shares;
}

std::vector<std::string> LayoutReport::lines() const {
  std::vector<std::string> lines = {
      str("  data      ", data.text, ": balance ", percent(data.balance)),
      str("  tensor    ", tensor.text, ": balance ", percent(tensor.balance)),
      str("  pipeline  ", pipeline.text, ": balance ", percent(pipeline.balance)),
      str("  schedule  ", num_micro_batches, num_micro_batches == 1 ? " micro-batch" : " micro-batches", ", bubble ",
          percent(bubble)),
      str("  memory    of the fullest rank (stage ", fullest.place.stage, ", --recompute ", recompute, ") ",
          memory_text(fullest.memory, fullest.memory.total / 100))};
  if (const LibraryBytes& libraries = fullest.memory.libraries; libraries.total() > 0) {
    const std::string bytes = bytes_text(fullest.memory.taken());
    lines.push_back(
        libraries.nccl > 0
            ? str("  GPU       of that rank holds ", bytes, ", with ", bytes_text(libraries.nccl), " of NCCL's buffers")
            : str("  process   of that rank grows, with its libraries, by ", bytes,
                  fullest.memory.shared > 0
                      ? str(", and maps ", bytes_text(fullest.memory.shared), " of other ranks of its node")
                      : ""));
  }
  if (!patches.empty()) {
    lines.push_back(str("  patches   ", patches));
  }
  if (!state.empty()) {
    lines.push_back(str("  optimizer ", state));
  }
  lines.push_back(str("  the layout leaves at most ", percent(efficiency()), " of the ranks' speed"));
  return lines;
}

LayoutReport report_layout(const StepConfig& config, const DataConfig& data, const ComputeTraits& compute) {
  const ReplicaPlan replica = plan_replica(config, config.parallel.dp - 1);
  LayoutReport report;
  report.data = data_balance(config);
  report.tensor = tensor_balance(config.model, config.parallel.tp);
  report.pipeline = pipeline_balance(config.model, replica.stages);
  if (const kernels::PatchGrid grid = config.model.input_grid(); grid.is_cut()) {
    report.patches = str(grid.rows(), " x ", grid.columns(), " of ", grid.patch_height, " x ", grid.patch_width,
                         " pixels, which do not divide ", grid.height, " x ", grid.width, ": the last are cut short, ",
                         percent(grid.padded_share()), " of what the model takes is padded");
  }
  if (const mesh::ParallelDims dims = parallel_dims(config.parallel); dims.cuts_data()) {
    report.state = str("state split over ", dims.shard(), " ranks, held ", dims.data() / dims.shard(), " times by the ",
                       dims.data(), " replicas");
  }
  report.num_micro_batches = config.num_micro_batches();
  report.bubble = replica.schedule->bubble_fraction;
  report.recompute = kRecomputeNames.at(static_cast<size_t>(config.recompute));
  report.fullest = plan_fullest_rank(config, data, compute);
  return report;
}

NodeReport report_nodes(const StepConfig& config, const std::vector<int>& nodes, const std::vector<int>& blocks,
                        c10::DeviceType device) {
  NodeReport report;
  if (nodes.size() > 1) {
    const int ranks_per_node = *std::max_element(nodes.begin(), nodes.end());
    const ReplicaPlan replica = plan_replica(config, config.parallel.dp - 1);
    const auto leaving = [&](const std::string& order) {
      StepConfig other = config;
      other.parallel.order = order;
      return plan_least_bytes(other, replica, ranks_per_node, device).between;
    };
    const auto sum = [](const auto& bytes) { return std::accumulate(bytes.begin(), bytes.end(), 0.0); };
    const auto own = leaving(config.parallel.order);
    std::vector<std::string> parts;
    for (const mesh::Group group : mesh::kGroups) {
      if (const double bytes = own[static_cast<size_t>(group)]; bytes > 0.0) {
        parts.push_back(str(mesh::group_name(group), " ", bytes_text(static_cast<int64_t>(bytes))));
      }
    }
    const auto* const best = std::min_element(mesh::kOrders.begin(), mesh::kOrders.end(), [&](auto a, auto b) {
      return sum(leaving(std::string(a))) < sum(leaving(std::string(b)));
    });
    const double least = sum(leaving(std::string(*best)));
    constexpr double kWorthChanging = 0.9;
    report.lines.push_back(str(
        "  nodes     of ", parts_text({nodes.begin(), nodes.end()}), " ranks; out of each in a step: ", join(parts),
        least < kWorthChanging * sum(own) ? str("; with --order ", *best, " ", bytes_text(static_cast<int64_t>(least)))
                                          : ""));
    if (own[static_cast<size_t>(mesh::Group::kTensor)] > 0.0) {
      report.warning =
          str("tensor groups span nodes (--tp ", config.parallel.tp, ", --order ", config.parallel.order, ", nodes of ",
              parts_text({nodes.begin(), nodes.end()}),
              " ranks): every layer waits for the network; let --tp divide the ranks of a node, and be the "
              "first of --order");
    }
  }
  if (device == c10::DeviceType::CPU && (nodes.size() > 1 || blocks != nodes)) {
    report.lines.push_back(str("  sums      in blocks of ", parts_text({blocks.begin(), blocks.end()}), " ranks",
                               blocks == nodes     ? ", the nodes: each sends its ranks' sum"
                               : nodes.size() == 1 ? ""
                                                   : ", which are not the nodes: every rank sends what it has"));
  }
  return report;
}

std::string memory_text(const MemoryPlan& memory, int64_t least) {
  const ClassBytes& bytes = memory.peak;
  std::vector<std::pair<int64_t, std::string>> parts;
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (bytes[i] > 0 && bytes[i] >= least) {
      std::string name(memory_class_name(static_cast<MemoryClass>(i)));
      std::replace(name.begin(), name.end(), '_', ' ');
      parts.emplace_back(-bytes[i], str(name, " ", bytes_text(bytes[i])));
    }
  }
  std::sort(parts.begin(), parts.end());
  std::vector<std::string> texts;
  std::transform(parts.begin(), parts.end(), std::back_inserter(texts), [](const auto& part) { return part.second; });
  const std::string held = memory.on_host == 0 ? bytes_text(memory.total)
                                               : str(bytes_text(memory.total - memory.on_host), " on the GPU and ",
                                                     bytes_text(memory.on_host), " on the host");
  return str(held, "; peaks: ", join(texts));
}

std::string memory_advice(const StepConfig& config, const DataConfig& data, const MemoryFailure& failure) {
  auto wanted = failure.held.current;
  wanted[static_cast<size_t>(failure.memory_class)] += failure.bytes;
  const int64_t total = std::accumulate(wanted.begin(), wanted.end(), int64_t{0});
  std::array<size_t, kNumMemoryClasses> order{};
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return wanted[a] > wanted[b]; });
  std::vector<std::string> options;
  if (config.parallel.zero == 0 && config.parallel.dp > 1) {
    options.emplace_back("--zero 1");
  }
  for (const size_t i : order) {
    if (static_cast<double>(wanted[i]) >= kWorthwhile * static_cast<double>(total)) {
      add_for_class(static_cast<MemoryClass>(i), config, data, options);
    }
  }
  const auto most = static_cast<MemoryClass>(order[0]);
  const bool holds_model = failure.held.current[static_cast<size_t>(MemoryClass::kParameters)] > 0;
  if (most != MemoryClass::kData || holds_model) {
    options.push_back(str("more --tp or --pp (they are ", config.parallel.tp, " and ", config.parallel.pp, ")"));
  }
  // Parameters, gradients and state together are no shorter with a master copy.
  const bool shrinks =
      most == MemoryClass::kActivations || most == MemoryClass::kWorkspaces || most == MemoryClass::kPackedWeights;
  if (!config.precision.is_half() && shrinks) {
    options.emplace_back("--precision bf16 or fp16");
  }
  if (failure.device.is_cuda() && step_recording(config, failure.device).micro_batches) {
    options.emplace_back("--cuda-graph off, whose activations stay reserved while others are made");
  }
  std::vector<std::string> once;
  for (const std::string& option : options) {
    if (std::find(once.begin(), once.end(), option) == once.end()) {
      once.push_back(option);
    }
  }
  return "what makes it hold less: " + join(once);
}

namespace {

int64_t rounded_up(int64_t size, int64_t multiple) {
  return (size + multiple - 1) / multiple * multiple;
}

constexpr size_t kPartNameWidth = 10;

std::string types_text(const PrecisionConfig& precision, const zero::PrecisionPolicy& policy, c10::Device device,
                       ModelPurpose purpose) {
  std::string text = str("parameters and activations ", kernels::short_name(policy.compute));
  if (purpose == ModelPurpose::kTraining) {
    text += str(", gradients ", kernels::short_name(policy.gradient), ", reduced in ",
                kernels::short_name(policy.reduce), ", master weights ", kernels::short_name(policy.master));
  }
  if (precision.kind == Precision::kTf32) {
    text += device.is_cuda() ? "; products in TF32" : "; products in fp32, because a CPU has no TF32";
  }
  if (purpose == ModelPurpose::kTraining && precision.kind == Precision::kFp16) {
    text += "; loss scale " + (precision.loss_scale > 0.0 ? digits(precision.loss_scale) : std::string("dynamic"));
  }
  return text;
}

std::pair<std::string, std::string> device_part(c10::Device device, at::ScalarType type) {
  if (device.is_cuda()) {
    const Gpu gpu = survey_gpus().gpus.at(static_cast<size_t>(device.index()));
    return {"GPU", str(gpu.name, ", compute capability ", gpu.major, ".", gpu.minor)};
  }
  const Processor& processor = this_processor();
  return {"processor", str(processor.name, ": ", instruction_set_text(processor, type))};
}

// What zero::make_update_rule() makes of the options.
std::string optimizer_text(OptimizerKind kind, c10::Device device) {
  const std::string name = zero::optimizer_name(kind);
  if (device.is_cpu()) {
    const bool is_layerwise = kind == OptimizerKind::kLamb || kind == OptimizerKind::kLars;
    return str(name, ": ", is_layerwise ? "two passes" : "one pass", " over the shard, in vectors of ",
               vector_bytes(this_processor()), " bytes");
  }
  const bool is_fused = kind == OptimizerKind::kAdam || kind == OptimizerKind::kAdamW;
  return str(name,
             is_fused ? ": one kernel, one pass over the shard" : ": operation by operation, only adam has a kernel");
}

}  // namespace

UnitMultiples unit_multiples(c10::DeviceType device, Precision precision, int vector_bytes) {
  if (device == c10::DeviceType::CPU) {
    // Half types are added up in fp32.
    const int64_t width = vector_bytes / (precision == Precision::kFp64 ? 8 : 4);
    return {width, width, width, 1};
  }
  switch (precision) {
    case Precision::kBf16:
    case Precision::kFp16:
      return {8, 32, 64, 64};
    case Precision::kTf32:
      return {4, 4, 4, 1};
    default:
      return {};
  }
}

std::vector<PaddedDim> padded_dims(const model::VitOptions& options, int tensor_size, const UnitMultiples& multiples) {
  // Forward FLOP of a sample; the backward products have the same dimensions twice.
  const auto costs = model::unit_costs(options);
  const int64_t num_tokens = options.num_tokens();
  const auto depth = static_cast<double>(options.depth), tokens = static_cast<double>(num_tokens),
             dim = static_cast<double>(options.embed_dim), hidden = static_cast<double>(options.mlp_hidden);
  const double projections = 8.0 * depth * tokens * dim * dim, attention = 4.0 * depth * tokens * tokens * dim,
               mlp = 4.0 * depth * tokens * dim * hidden, ends = costs.front() + costs.back();
  std::vector<PaddedDim> dims;
  // The rank with the largest share decides. `other`: how much the same padding adds in a second dimension.
  const auto add = [&](const std::string& name, const std::vector<int64_t>& shares, int64_t multiple,
                       const std::string& products, double flops, double other = 1.0) {
    if (std::all_of(shares.begin(), shares.end(), [&](int64_t share) { return share % multiple == 0; })) {
      return;
    }
    const int64_t largest = *std::max_element(shares.begin(), shares.end());
    const int64_t padded = rounded_up(largest, multiple);
    const double waste = other * static_cast<double>(padded) / static_cast<double>(largest) - 1.0;
    const double cost = waste * flops / (projections + attention + mlp + ends);
    dims.push_back({name, shares, multiple, padded, products, waste, cost});
  };
  const bool classifies = options.task == model::Task::kClassify;
  const int64_t features = multiples.features;
  add("embedding", {options.embed_dim}, features, "linear layers", projections + mlp + ends);
  add("features of the heads", shares_of(options.num_heads, tensor_size, options.head_dim()), features,
      "qkv and projection", projections);
  add("MLP features", shares_of(options.mlp_hidden, tensor_size), features, "fc1 and fc2", mlp);
  add("patch values", {options.input_grid().num_features()}, features, "the patch embedding", costs.front());
  add(classifies ? "classes" : "predicted patch values",
      {classifies ? options.num_classes : options.output_grid().num_features()}, features, "the head", costs.back());
  add("head dimension", {options.head_dim()}, multiples.head_dim, "attention", attention);
  add("tokens", {num_tokens}, multiples.tokens, "attention", attention,
      static_cast<double>(rounded_up(num_tokens, multiples.queries)) / tokens);
  return dims;
}

std::vector<std::string> KernelReport::lines() const {
  const auto line = [](std::string name, const std::string& text) {
    name.resize(std::max(kPartNameWidth, name.size() + 1), ' ');
    return "  " + name + text;
  };
  std::vector<std::string> out;
  for (const auto& [name, text] : parts) {
    out.push_back(line(name, text));
  }
  for (const PaddedDim& dim : padded) {
    out.push_back(line("padding", str(dim.name, " ", parts_text(dim.shares), ": no multiple of ", dim.multiple,
                                      ", padded to ", dim.padded, "; ", percent(dim.waste), " more work in ",
                                      dim.products, ", ", percent(dim.cost), " of the model's products")));
  }
  return out;
}

KernelReport report_kernels(const StepConfig& config, c10::Device device, ModelPurpose purpose) {
  const bool is_trained = purpose == ModelPurpose::kTraining;
  const zero::PrecisionPolicy policy = precision_policy(config.precision);
  const at::ScalarType type = policy.compute;
  const bool with_dropout = is_trained && config.model.attention_dropout > 0.0;
  KernelReport report;
  report.parts = {{"types", types_text(config.precision, policy, device, purpose)},
                  device_part(device, type),
                  {"products", kernels::product_kernel_text(device, type, config.model.gelu)},
                  {"attention", kernels::attention_kernel_text(device, type, with_dropout)}};
  if (!is_trained) {
    return report;
  }
  report.parts.emplace_back("optimizer", optimizer_text(config.optimizer.kind, device));
  if (device.is_cuda()) {
    report.parts.emplace_back("step", step_recording(config, device).text);
  }
  UnitMultiples multiples = unit_multiples(device.type(), config.precision.kind, vector_bytes(this_processor()));
  const int64_t tile = kernels::device_attention_tile(type);
  if (device.is_cuda() && tile < multiples.tokens) {
    multiples.head_dim = multiples.tokens = multiples.queries = tile;
  }
  report.padded = padded_dims(config.model, config.parallel.tp, multiples);
  return report;
}

Json to_json(const KernelReport& report) {
  Json json;
  for (const auto& [name, text] : report.parts) {
    json[name] = text;
  }
  json["padded_dimensions"] = Json::array();
  for (const PaddedDim& dim : report.padded) {
    json["padded_dimensions"].push_back({{"dimension", dim.name},
                                         {"shares", dim.shares},
                                         {"multiple", dim.multiple},
                                         {"padded", dim.padded},
                                         {"products", dim.products},
                                         {"waste", dim.waste},
                                         {"cost", dim.cost}});
  }
  return json;
}

}  // namespace vit_hybrid::train
