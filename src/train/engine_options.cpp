// The options of an engine, field by field.
#include "src/train/engine_options.h"

namespace vit_hybrid::train {

zero::AdamOptions adam_options(const OptimizerConfig& config) {
  zero::AdamOptions options;
  options.kind = config.kind == OptimizerKind::kAdamW ? zero::AdamKind::kAdamW : zero::AdamKind::kAdam;
  options.beta1 = config.beta1;
  options.beta2 = config.beta2;
  options.eps = config.eps;
  options.weight_decay = config.weight_decay;
  options.decay_vectors = config.decay_vectors;
  return options;
}

EngineOptions engine_options(const RunConfig& config) {
  EngineOptions options;
  options.model = config.model;
  options.precision = zero::make_precision_policy(config.precision == Precision::kFp64 ? "fp64" : "fp32");
  options.optimizer = adam_options(config.optimizer);
  options.zero_stage = config.parallel.zero == 0 ? zero::ZeroStage::kReplicated : zero::ZeroStage::kOptimizerState;
  options.schedule = config.parallel.schedule;
  options.clip_norm = config.optimizer.clip_norm;
  options.bucket_bytes = static_cast<int64_t>(config.parallel.bucket_mb * (1 << 20));
  options.seed = config.seed;
  return options;
}

}  // namespace vit_hybrid::train
