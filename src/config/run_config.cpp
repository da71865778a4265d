// RunConfig: sizes and schedules that follow from its values.
#include "src/config/run_config.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>

#include "src/base/error.h"
#include "src/base/text.h"
#include "src/config/run_options.h"

namespace vit_hybrid::train {

mesh::ParallelDims parallel_dims(const ParallelConfig& parallel) {
  return {parallel.dp, parallel.tp, parallel.pp, parallel.order, parallel.state_shards()};
}

zero::PrecisionPolicy precision_policy(const PrecisionConfig& precision) {
  zero::PrecisionPolicy policy = zero::make_precision_policy(precision_name(precision.kind));
  if (precision.gradient == GradientType::kHalf) {
    policy.gradient = policy.reduce = policy.compute;
  }
  if (precision.reduce == GradientType::kHalf) {
    policy.reduce = policy.compute;
  }
  return policy;
}

namespace {

constexpr const char* kFromLocalBatch = "dp x local-batch-size";
constexpr int64_t kMicroBatchesPerStage = 4;  // the bubble is then at most (pp - 1) / (5 pp - 1), below a fifth

int64_t ceil_divide(int64_t n, int64_t d) {
  return (n + d - 1) / d;
}

void resolve_layout(RunConfig& config, int world_size) {
  ParallelConfig& parallel = config.parallel;
  const int64_t model_size = int64_t{parallel.tp} * parallel.pp;
  if (parallel.dp == 0 && world_size > 0 && model_size >= 1 && world_size % model_size == 0) {
    parallel.dp = static_cast<int>(world_size / model_size);
    config.origin["dp"] = str("the ranks that are left of ", world_size);
  }
}

void resolve_batch(RunConfig& config) {
  ParallelConfig& parallel = config.parallel;
  const auto origin = config.origin.find("global-batch-size");
  const bool is_given = origin != config.origin.end() && origin->second != kFromLocalBatch;
  if (config.local_batch_size > 0 && parallel.dp > 0 && !is_given) {
    config.global_batch_size = config.local_batch_size * parallel.dp;
    config.origin["global-batch-size"] = kFromLocalBatch;
  }
  if (parallel.micro_batch_size == 0 && parallel.dp > 0) {
    const int64_t replica = config.replica_batch_size();
    const int64_t wanted = parallel.pp > 1 ? kMicroBatchesPerStage * parallel.pp : 1;
    parallel.micro_batch_size = std::max<int64_t>(1, replica / wanted);
    config.origin["micro-batch-size"] = "auto";
  }
  if (config.data.valid_batch_size == 0) {
    config.data.valid_batch_size = config.global_batch_size;
    config.origin["valid-batch-size"] = "auto";
  }
}

void set_if_empty(RunConfig& config, std::string& variable, const std::string& value, const char* name,
                  const char* origin) {
  if (variable.empty()) {
    variable = value;
    config.origin[name] = origin;
  }
}

void resolve_data(RunConfig& config) {
  DataConfig& data = config.data;
  if (data.kind == DataKind::kAuto && !data.train_data.empty()) {
    data.kind = DataKind::kHdf5;
    config.origin["data"] = "train-data is given";
  }
  set_if_empty(config, data.dataset_name, config.is_forecast() ? "fields" : "images", "dataset-name", "task");
  if (!data.stats.empty()) {
    const std::filesystem::path folder = data.stats;
    set_if_empty(config, data.global_means, (folder / "global_means.npy").string(), "global-means", "stats");
    set_if_empty(config, data.global_stds, (folder / "global_stds.npy").string(), "global-stds", "stats");
  }
}

// A test of a recipe leaves no checkpoint, whatever the recipe says of them.
void resolve_trial(RunConfig& config) {
  config.data.validates = config.find_lr == 0;
  if (!config.is_trial()) {
    return;
  }
  config.checkpoint.keep = 0;
  config.checkpoint.every = 0;
  config.checkpoint.at_start = false;
  for (const char* name : {"keep-checkpoints", "checkpoint-every", "checkpoint-at-start"}) {
    config.origin[name] = config.test_steps > 0 ? "test-steps" : "find-lr";
  }
}

}  // namespace

int64_t steps_of_epochs(int64_t epochs, int64_t steps_of_epoch) {
  int64_t steps = 0;
  if (__builtin_mul_overflow(epochs, steps_of_epoch, &steps) || steps > kMostCount) {
    throw Error(ErrorClass::kUsage,
                str("--epochs is ", epochs, ", and an epoch has ", steps_of_epoch,
                    " iterations: that is more of them than can be counted; allowed: at most ", kMostCount),
                "give fewer epochs, or --steps N");
  }
  return steps;
}

int RunConfig::precedence(const std::string& option) const {
  const auto found = origin.find(option);
  const std::string by = found == origin.end() ? "" : found->second;
  return by == "command line" ? 2 : by.starts_with("environment ") ? 1 : 0;
}

std::optional<std::vector<int>> parse_sum_blocks(const std::string& text, int num_ranks) {
  std::vector<int> blocks;
  const char* at = text.data();
  const char* const end = at + text.size();
  for (int left = num_ranks; left > 0; ++at) {
    int size = 0;
    const auto [stop, error] = std::from_chars(at, end, size);
    if (error != std::errc() || size < 1 || size > left) {
      return std::nullopt;
    }
    blocks.push_back(size);
    left -= size;
    at = stop;
    if (left == 0 ? at != end : at == end || *at != ',') {
      return std::nullopt;
    }
  }
  return blocks;
}

int64_t ParallelConfig::bucket_bytes() const {
  return static_cast<int64_t>(std::ceil(bucket_mb * (1 << 20)));
}

int64_t StepConfig::replica_batch_size() const {
  return ceil_divide(global_batch_size, std::max(parallel.dp, 1));
}

int StepConfig::num_micro_batches() const {
  return static_cast<int>(ceil_divide(replica_batch_size(), std::max<int64_t>(parallel.micro_batch_size, 1)));
}

double RunConfig::scaled(double lr) const {
  const double ratio = static_cast<double>(global_batch_size) / static_cast<double>(schedule.lr_batch_size);
  return schedule.scaling == LrScaling::kSqrt     ? lr * std::sqrt(ratio)
         : schedule.scaling == LrScaling::kLinear ? lr * ratio
                                                  : lr;
}

LrSchedule RunConfig::lr_schedule(int64_t total) const {
  if (find_lr > 0) {
    constexpr double kLeast = 1e-7, kMost = 10.0;
    return {LrSchedule::Kind::kRange, kMost, 0, find_lr, kLeast};
  }
  return {schedule.kind, scaled(schedule.lr), schedule.warmup, total, scaled(schedule.min_lr), schedule.decay_share};
}

void resolve(RunConfig& config, int world_size) {
  resolve_layout(config, world_size);
  resolve_batch(config);
  resolve_data(config);
  resolve_trial(config);
  if (config.name.empty()) {
    config.name = !config.preset.empty() ? config.preset : "run";
  }
}

}  // namespace vit_hybrid::train
