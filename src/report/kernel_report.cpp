// KernelReport: the texts of those who choose the kernels, put together.
#include "src/report/kernel_report.h"

#include <algorithm>

#include "src/base/device/gpu_survey.h"
#include "src/base/text.h"
#include "src/config/optimizer_options.h"
#include "src/kernels/attention/attend.h"
#include "src/kernels/gemm/matmul.h"
#include "src/kernels/gemm/product_problem.h"
#include "src/machine/processor.h"
#include "src/machine/step_recording.h"

namespace vit_hybrid::train {

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
