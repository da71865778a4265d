// KernelReport: the dimensions of a ViT's products, rounded up, and the kernels that take them.
#include "src/report/kernel_report.h"

#include <algorithm>

#include "model/vit_costs.h"
#include "src/base/device/gpu_survey.h"
#include "src/base/text.h"
#include "src/kernels/attention/attend.h"
#include "src/kernels/attention/device_attention.h"
#include "src/kernels/gemm/device_products.h"
#include "src/kernels/gemm/matmul.h"
#include "src/machine/device.h"
#include "src/machine/processor.h"
#include "src/report/layout_report.h"

namespace vit_hybrid::train {

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

KernelReport report_kernels(const RunConfig& config, c10::Device device, ModelPurpose purpose) {
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
