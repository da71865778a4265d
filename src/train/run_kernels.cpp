// Joins configuration, sampler and the measuring of kernels.
#include "src/train/run_kernels.h"

#include <algorithm>
#include <cstdlib>
#include <set>

#include "model/tune_kernels.h"
#include "parallel/comm/agreement.h"
#include "src/base/log.h"
#include "src/base/text.h"
#include "src/train/engine_options.h"

namespace vit_hybrid::train {

namespace {

// In the place of a kernel's bytes, which nobody can read.
constexpr const char* kBytesOfLibrary = "cuBLASLt";

model::ProductTypes product_types(const RunConfig& config) {
  const zero::PrecisionPolicy policy = precision_policy(config);
  return {policy.compute, policy.gradient, kernel_options(config).fp32};
}

bool is_hexadecimal(const std::string& kernel) {
  return !kernel.empty() && kernel.find_first_not_of("0123456789abcdef") == std::string::npos;
}

}  // namespace

tensor::DeviceKernelOptions kernel_options(const RunConfig& config) {
  const bool is_tf32 = config.precision.kind == Precision::kTf32;
  return {is_tf32 ? tensor::Fp32Products::kTf32 : tensor::Fp32Products::kExact,
          config.deterministic ? tensor::SumOrder::kFixed : tensor::SumOrder::kAny};
}

Tf32Override tf32_override(Precision precision, const char* value) {
  const std::string text = value == nullptr ? "" : value;
  const bool is_tf32 = precision == Precision::kTf32;
  if (text.empty() || (text == "0") != is_tf32) {
    return {};
  }
  if (is_tf32) {
    return {
        std::nullopt,
        "--precision tf32 without TF32: NVIDIA_TF32_OVERRIDE is 0, by which NVIDIA's libraries never take it; unset "
        "it, or give --precision fp32"};
  }
  return {Error(ErrorClass::kUsage,
                str("--precision ", precision_name(precision), " is to have no TF32, but NVIDIA_TF32_OVERRIDE is '",
                    text, "', and NVIDIA's libraries obey that instead of this program"),
                "unset NVIDIA_TF32_OVERRIDE or set it to 0, or give --precision tf32"),
          {}};
}

void set_kernel_options(const RunConfig& config, c10::Device device, const comm::MpiGroup& world) {
  if (device.is_cuda()) {
    const Tf32Override forced = tf32_override(config.precision.kind, std::getenv("NVIDIA_TF32_OVERRIDE"));
    comm::agree(world, forced.problem);
    if (!forced.warning.empty()) {
      log_warning(forced.warning);
    }
  }
  tensor::set_device_kernel_options(kernel_options(config));
}

std::vector<int64_t> micro_batch_sizes(const data::EpochPlan& plan, int64_t num_replicas, int64_t micro_batch_size) {
  std::set<int64_t> sizes;
  // All steps but the last have the whole batch.
  for (const int64_t step : {int64_t{0}, plan.num_steps() - 1}) {
    for (int64_t replica = 0; replica < num_replicas && plan.num_steps() > 0; ++replica) {
      const auto samples = plan.replica_batch(step, replica, num_replicas);
      for (const auto& micro_batch : data::micro_batches(samples, micro_batch_size)) {
        sizes.insert(static_cast<int64_t>(micro_batch.size()));
      }
    }
  }
  return {sizes.begin(), sizes.end()};
}

void choose_kernels(const RunConfig& config, const std::vector<int64_t>& sizes, const std::string& saved,
                    c10::Device device, const comm::MpiGroup& world) {
  if (device.is_cpu()) {
    return;
  }
  const auto types = product_types(config);
  const auto problems = model::device_problems_of_mesh(config.model, config.parallel.tp, sizes, types);
  const auto use = config.retune ? model::SavedKernels::kMeasureAgain : model::SavedKernels::kUse;
  log_line(model::tune_kernels(problems, saved, use, device, world).text);
  const int64_t largest = sizes.empty() ? 0 : sizes.back();
  const auto of_micro_batch =
      model::device_problems(config.model, {0, config.model.num_units()}, 0, config.parallel.tp, largest, types);
  const std::string cost = model::fixed_order_cost_text(of_micro_batch);
  if (!cost.empty()) {
    log_line(cost);
  }
}

std::string saved_kernels() {
  const tensor::KernelTable& table = tensor::kernel_table();
  return table.choices().empty() ? std::string() : table.text();
}

Json kernel_choices_json() {
  const tensor::KernelTable& table = tensor::kernel_table();
  if (table.choices().empty()) {
    return nullptr;
  }
  Json choices;
  for (const auto& [problem, choice] : table.choices()) {
    const std::string kernel = is_hexadecimal(choice.kernel) ? kBytesOfLibrary : choice.kernel;
    choices[problem] = {
        {"kernel", kernel}, {"text", choice.text}, {"us", choice.microseconds}, {"fastest_us", choice.fastest}};
  }
  return {{"machine", table.machine()}, {"choices", std::move(choices)}};
}

}  // namespace vit_hybrid::train
