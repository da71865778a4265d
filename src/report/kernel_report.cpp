// The dimensions of a ViT's products, rounded up, and the kernels that take them.
#include "src/report/kernel_report.h"

#include <algorithm>
#include <numeric>

#include "src/base/device/gpu_survey.h"
#include "src/base/text.h"
#include "src/config/run_config.h"
#include "src/kernels/attention/attend.h"
#include "src/kernels/gemm/matmul.h"
#include "src/kernels/gemm/product_problem.h"
#include "src/machine/processor.h"
#include "src/machine/step_recording.h"

namespace vit_hybrid::train {

namespace {

int64_t rounded_up(int64_t size, int64_t multiple) {
  return (size + multiple - 1) / multiple * multiple;
}

double product(std::initializer_list<int64_t> factors) {
  return std::accumulate(factors.begin(), factors.end(), 1.0,
                         [](double result, int64_t factor) { return result * static_cast<double>(factor); });
}

std::vector<int64_t> shares_of(int64_t count, int parts, int64_t each) {
  std::vector<int64_t> shares;
  for (int i = 0; i < parts; ++i) {
    shares.push_back(Partition(count, parts).part(i).size() * each);
  }
  return shares;
}

// Forward FLOP of a sample; the backward products have the same dimensions twice.
struct Flops {
  explicit Flops(const model::VitOptions& options)
      : projections(product({8, options.depth, options.num_tokens(), options.embed_dim, options.embed_dim})),
        attention(product({4, options.depth, options.num_tokens(), options.num_tokens(), options.embed_dim})),
        mlp(product({4, options.depth, options.num_tokens(), options.embed_dim, options.mlp_hidden})),
        ends(model::unit_costs(options).front() + model::unit_costs(options).back()) {}
  double all() const { return projections + attention + mlp + ends; }

  double projections, attention, mlp, ends;
};

class PaddedDims {
 public:
  PaddedDims(const model::VitOptions& options, int tensor_size)
      : options_(options), tensor_size_(tensor_size), flops_(options) {}

  void add_features(int64_t multiple) {
    const int64_t pixels = options_.patch_size * options_.patch_size;
    const auto costs = model::unit_costs(options_);
    add("embedding", {options_.embed_dim}, multiple, "linear layers", flops_.projections + flops_.mlp + flops_.ends);
    add("features of the heads", shares_of(options_.num_heads, tensor_size_, options_.head_dim()), multiple,
        "qkv and projection", flops_.projections);
    add("MLP features", shares_of(options_.mlp_hidden, tensor_size_, 1), multiple, "fc1 and fc2", flops_.mlp);
    add("patch values", {options_.in_channels * pixels}, multiple, "the patch embedding", costs.front());
    const bool classifies = options_.task == model::Task::kClassify;
    add(classifies ? "classes" : "predicted patch values",
        {classifies ? options_.num_classes : options_.out_channels * pixels}, multiple, "the head", costs.back());
  }

  void add_attention(const UnitMultiples& multiples) {
    add("head dimension", {options_.head_dim()}, multiples.head_dim, "attention", flops_.attention);
    const int64_t tokens = options_.num_tokens();
    const double queries = static_cast<double>(rounded_up(tokens, multiples.queries)) / static_cast<double>(tokens);
    add("tokens", {tokens}, multiples.tokens, "attention", flops_.attention, queries);
  }

  std::vector<PaddedDim> take() { return std::move(dims_); }

 private:
  // The rank with the largest share decides. `other`: how much the same padding adds in a second dimension.
  void add(std::string name, std::vector<int64_t> shares, int64_t multiple, std::string products, double flops,
           double other = 1.0) {
    const int64_t largest = *std::max_element(shares.begin(), shares.end());
    PaddedDim dim{std::move(name), std::move(shares), multiple, rounded_up(largest, multiple), std::move(products)};
    dim.waste = other * static_cast<double>(dim.padded) / static_cast<double>(largest) - 1.0;
    dim.cost = dim.waste * flops / flops_.all();
    const auto misses = [&](int64_t share) { return share % multiple != 0; };
    if (std::any_of(dim.shares.begin(), dim.shares.end(), misses)) {
      dims_.push_back(std::move(dim));
    }
  }

  const model::VitOptions& options_;
  int tensor_size_;
  Flops flops_;
  std::vector<PaddedDim> dims_;
};

std::string percent(double part) {
  return fixed_text(100.0 * part, 1) + " %";
}

}  // namespace

UnitMultiples unit_multiples(c10::DeviceType device, Precision precision, int vector_bytes) {
  if (device == c10::DeviceType::CPU) {
    // Half types are added up in fp32.
    const int64_t lanes = vector_bytes / (precision == Precision::kFp64 ? 8 : 4);
    return {lanes, lanes, lanes, 1};
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
  PaddedDims dims(options, tensor_size);
  dims.add_features(multiples.features);
  dims.add_attention(multiples);
  return dims.take();
}

std::string text_of(const PaddedDim& dim) {
  return str(dim.name, " ", parts_text(dim.shares), ": no multiple of ", dim.multiple, ", padded to ", dim.padded, "; ",
             percent(dim.waste), " more work in ", dim.products, ", ", percent(dim.cost), " of the model's products");
}

Json to_json(const PaddedDim& dim) {
  return {{"dimension", dim.name},    {"shares", dim.shares}, {"multiple", dim.multiple}, {"padded", dim.padded},
          {"products", dim.products}, {"waste", dim.waste},   {"cost", dim.cost}};
}

namespace {

constexpr size_t kNameWidth = 10;

std::string forward_types(const zero::PrecisionPolicy& policy) {
  return str("parameters and activations ", kernels::short_name(policy.compute));
}

std::string products_note(const RunConfig& config, c10::Device device) {
  if (config.precision.kind != Precision::kTf32) {
    return "";
  }
  return device.is_cuda() ? "; products in TF32" : "; products in fp32, because a CPU has no TF32";
}

std::string types_text(const RunConfig& config, const zero::PrecisionPolicy& policy, c10::Device device) {
  std::string text = str(forward_types(policy), ", gradients ", kernels::short_name(policy.gradient), ", reduced in ",
                         kernels::short_name(policy.reduce), ", master weights ", kernels::short_name(policy.master),
                         products_note(config, device));
  if (config.precision.kind == Precision::kFp16) {
    text += "; loss scale " +
            (config.precision.loss_scale > 0.0 ? digits(config.precision.loss_scale) : std::string("dynamic"));
  }
  return text;
}

std::string gpu_text(c10::Device device) {
  const Gpu gpu = survey_gpus().gpus.at(static_cast<size_t>(device.index()));
  return str(gpu.name, ", compute capability ", gpu.major, ".", gpu.minor);
}

std::string processor_text(at::ScalarType type) {
  const Processor& processor = this_processor();
  return str(processor.name, ": ", instruction_set_text(processor, type));
}

// What zero::make_update_rule() makes of the options.
std::string optimizer_text(const RunConfig& config, c10::Device device) {
  const OptimizerKind kind = config.optimizer.kind;
  const std::string name = zero::optimizer_name(optimizer_options(config.optimizer).kind);
  if (device.is_cpu()) {
    const bool is_layerwise = kind == OptimizerKind::kLamb || kind == OptimizerKind::kLars;
    return str(name, ": ", is_layerwise ? "two passes" : "one pass", " over the shard, in vectors of ",
               vector_bytes(this_processor()), " bytes");
  }
  const bool is_fused = kind == OptimizerKind::kAdam || kind == OptimizerKind::kAdamW;
  return str(name,
             is_fused ? ": one kernel, one pass over the shard" : ": operation by operation, only adam has a kernel");
}

// Of the device and of the kernels of a forward pass.
void add_forward(KernelReport& report, c10::Device device, at::ScalarType type, bool with_dropout) {
  if (device.is_cuda()) {
    report.parts.emplace_back("GPU", gpu_text(device));
  } else {
    report.parts.emplace_back("processor", processor_text(type));
  }
  report.parts.emplace_back("products", kernels::product_kernel_text(device, type));
  report.parts.emplace_back("attention", kernels::attention_kernel_text(device, type, with_dropout));
}

}  // namespace

std::vector<std::string> KernelReport::lines() const {
  const auto line = [](std::string name, const std::string& text) {
    name.resize(std::max(kNameWidth, name.size() + 1), ' ');
    return "  " + name + text;
  };
  std::vector<std::string> out;
  for (const auto& [name, text] : parts) {
    out.push_back(line(name, text));
  }
  for (const PaddedDim& dim : padded) {
    out.push_back(line("padding", text_of(dim)));
  }
  return out;
}

KernelReport report_kernels(const RunConfig& config, c10::Device device) {
  const zero::PrecisionPolicy policy = precision_policy(config);
  KernelReport report;
  report.parts.emplace_back("types", types_text(config, policy, device));
  add_forward(report, device, policy.compute, config.model.attention_dropout > 0.0);
  report.parts.emplace_back("optimizer", optimizer_text(config, device));
  if (device.is_cuda()) {
    report.parts.emplace_back("step", step_recording_text(config, device));
  }
  report.padded = padded_dims(config.model, config.parallel.tp,
                              unit_multiples(device.type(), config.precision.kind, vector_bytes(this_processor())));
  return report;
}

KernelReport report_kernels_of_use(const RunConfig& config, c10::Device device) {
  const zero::PrecisionPolicy policy = precision_policy(config);
  KernelReport report;
  report.parts.emplace_back("types", forward_types(policy) + products_note(config, device));
  add_forward(report, device, policy.compute, false);
  return report;
}

Json to_json(const KernelReport& report) {
  Json json;
  for (const auto& [name, text] : report.parts) {
    json[name] = text;
  }
  json["padded_dimensions"] = Json::array();
  for (const PaddedDim& dim : report.padded) {
    json["padded_dimensions"].push_back(to_json(dim));
  }
  return json;
}

}  // namespace vit_hybrid::train
