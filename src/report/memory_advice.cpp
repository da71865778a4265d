// MemoryAdvice: the options by class of memory.
#include "src/report/memory_advice.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <vector>

#include "src/base/text.h"
#include "src/machine/step_recording.h"

namespace vit_hybrid::train {

namespace {

// Classes that hold less than this part are left alone.
constexpr double kWorthwhile = 0.1;

bool is_half(const RunConfig& config) {
  return config.precision.kind == Precision::kBf16 || config.precision.kind == Precision::kFp16;
}

void add_for_activations(const RunConfig& config, std::vector<std::string>& options) {
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

void add_for_data(const RunConfig& config, std::vector<std::string>& options) {
  const DataConfig& data = config.data;
  if (data.kind == DataKind::kBuiltin && config.is_forecast()) {  // other generated data are made batch by batch
    options.push_back(str("fewer --generated-samples and --generated-valid-samples (they are ", data.generated_samples,
                          " and ", data.generated_valid_samples, ")"));
  }
  if (data.prefetch_depth > 1) {
    options.push_back(str("a smaller --prefetch-depth (it is ", data.prefetch_depth, ")"));
  }
  if (config.parallel.micro_batch_size > 1) {
    options.push_back(str("a smaller --micro-batch-size (it is ", config.parallel.micro_batch_size, ")"));
  }
}

void add_for_class(MemoryClass memory_class, const RunConfig& config, std::vector<std::string>& options) {
  switch (memory_class) {
    case MemoryClass::kParameters:
    case MemoryClass::kPackedWeights:
      return;  // --tp and --pp, which always count
    case MemoryClass::kGradients:
      if (is_half(config) && config.precision.gradient == GradientType::kMaster) {
        options.push_back("--grad-dtype half");
      }
      return;
    case MemoryClass::kOptimizer:
      options.push_back(str("more replicas (--dp is ", config.parallel.dp, "), which share the optimizer's state"));
      return;
    case MemoryClass::kCommunication:
      options.push_back(config.parallel.bucket_mb > 0.0
                            ? str("a smaller --bucket-mb (it is ", config.parallel.bucket_mb, ")")
                            : "a smaller --bucket-mb (it is auto)");
      return;
    case MemoryClass::kData:
      return add_for_data(config, options);
    default:
      return add_for_activations(config, options);
  }
}

}  // namespace

std::string memory_advice(const RunConfig& config, const MemoryFailure& failure) {
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
      add_for_class(static_cast<MemoryClass>(i), config, options);
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
  if (!is_half(config) && shrinks) {
    options.emplace_back("--precision bf16 or fp16");
  }
  if (failure.device.is_cuda() && records_steps(config, failure.device)) {
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

}  // namespace vit_hybrid::train
