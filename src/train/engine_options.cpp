// The options of an engine, field by field.
#include "src/train/engine_options.h"

#include <cmath>

#include "src/train/optimizer_options.h"

namespace vit_hybrid::train {

zero::PrecisionPolicy precision_policy(const RunConfig& config) {
  zero::PrecisionPolicy policy = zero::make_precision_policy(precision_name(config.precision.kind));
  if (config.precision.gradient == GradientType::kHalf) {
    policy.gradient = policy.reduce = policy.compute;
  }
  if (config.precision.reduce == GradientType::kHalf) {
    policy.reduce = policy.compute;
  }
  return policy;
}

EngineOptions engine_options(const RunConfig& config) {
  EngineOptions options;
  options.model = config.model;
  options.precision = precision_policy(config);
  options.loss_scale = zero::loss_scale_options(config.precision.kind == Precision::kFp16, config.precision.loss_scale);
  options.recompute = config.recompute;
  options.optimizer = optimizer_options(config.optimizer);
  options.zero_stage = config.parallel.zero == 0 ? zero::ZeroStage::kReplicated : zero::ZeroStage::kOptimizerState;
  options.schedule = config.parallel.schedule;
  options.clip_norm = config.optimizer.clip_norm;
  options.bucket_bytes = static_cast<int64_t>(std::ceil(config.parallel.bucket_mb * (1 << 20)));
  options.seed = config.seed;
  return options;
}

}  // namespace vit_hybrid::train
