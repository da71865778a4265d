// Optimizers by configuration, and what each does not have.
#include "src/config/optimizer_options.h"

#include "src/base/error.h"
#include "src/base/text.h"

namespace vit_hybrid::train {

namespace {

zero::OptimizerKind rule_of(OptimizerKind kind) {
  switch (kind) {
    case OptimizerKind::kAdam:
      return zero::OptimizerKind::kAdam;
    case OptimizerKind::kAdamW:
      return zero::OptimizerKind::kAdamW;
    case OptimizerKind::kSgd:
      return zero::OptimizerKind::kSgd;
    case OptimizerKind::kLamb:
      return zero::OptimizerKind::kLamb;
    case OptimizerKind::kLars:
      return zero::OptimizerKind::kLars;
  }
  VH_ASSERT(false, "no such optimizer");
}

}  // namespace

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

zero::OptimizerOptions optimizer_options(const OptimizerConfig& config) {
  zero::OptimizerOptions options;
  options.kind = rule_of(config.kind);
  options.beta1 = config.beta1;
  options.beta2 = config.beta2;
  options.eps = config.eps;
  options.momentum = config.momentum;
  options.nesterov = config.nesterov;
  options.trust_coefficient = config.trust_coefficient;
  options.weight_decay = config.weight_decay;
  options.decay_vectors = config.decay_vectors;
  return options;
}

std::vector<std::string> optimizer_problems(const OptimizerConfig& config) {
  const OptimizerConfig standard;
  const std::string name = zero::optimizer_name(rule_of(config.kind));
  const bool is_lars = config.kind == OptimizerKind::kLars;
  const bool is_sgd = config.kind == OptimizerKind::kSgd;
  std::vector<std::string> out;
  const auto check = [&](bool has_it, const char* option, double value, double by_default, const char* users) {
    if (!has_it && value != by_default) {
      out.push_back(str("--", option, " ", value, " is for ", users, ", and --optimizer is ", name,
                        "; leave it at its default, ", by_default));
    }
  };
  check(!is_sgd && !is_lars, "beta1", config.beta1, standard.beta1, "adam, adamw and lamb");
  check(!is_sgd && !is_lars, "beta2", config.beta2, standard.beta2, "adam, adamw and lamb");
  check(!is_sgd && !is_lars, "eps", config.eps, standard.eps, "adam, adamw and lamb");
  check(is_sgd || is_lars, "momentum", config.momentum, standard.momentum, "sgd and lars");
  check(is_lars, "trust-coefficient", config.trust_coefficient, standard.trust_coefficient, "lars");
  if (config.nesterov && !is_sgd) {
    out.push_back(str("--nesterov is for sgd, and --optimizer is ", name, "; give --no-nesterov"));
  } else if (config.nesterov && config.momentum == 0.0) {
    out.push_back("--nesterov needs momentum, and --momentum is 0; give --momentum 0.9, or --no-nesterov");
  }
  return out;
}

}  // namespace vit_hybrid::train
