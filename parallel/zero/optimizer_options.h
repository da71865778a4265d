// OptimizerOptions: which optimizer a run has, and its hyperparameters; PrecisionPolicy: the number types of a run, one
// value from the option --precision.
#pragma once

#include <c10/core/ScalarType.h>

#include <array>
#include <string>

#include "src/base/error.h"
#include "src/base/text.h"

namespace vit_hybrid::zero {

/// See the rules of each: rules/update_rule.cpp.
enum class OptimizerKind { kAdam, kAdamW, kSgd, kLamb, kLars };

/// As options and checkpoints have them.
inline constexpr std::array kOptimizerNames = {"adam", "adamw", "sgd", "lamb", "lars"};
inline std::string optimizer_name(OptimizerKind kind) {
  return kOptimizerNames.at(static_cast<size_t>(kind));
}

/// Hyperparameters that stay for a run; an optimizer looks at its own only.
struct OptimizerOptions {
  OptimizerKind kind = OptimizerKind::kAdam;
  double beta1 = 0.9;                ///< adam, adamw, lamb
  double beta2 = 0.95;               ///< adam, adamw, lamb
  double eps = 1e-8;                 ///< adam, adamw, lamb
  double momentum = 0.9;             ///< sgd, lars; 0: no state
  bool nesterov = false;             ///< sgd
  double trust_coefficient = 0.001;  ///< lars
  double weight_decay = 0.0;         ///< of matrices
  bool decay_vectors = false;        ///< biases, norms and positions (DecayGroup::kVector) are treated as matrices are
};

/// Parameters and activations are of type `compute`, gradients are added up in `gradient`, reduced over ranks in
/// `reduce`, and the optimizer updates weights and moments of type `master`. Where master equals compute, the master
/// weights are the parameters themselves; else the parameters are cast from them (P. Micikevicius et al., "Mixed
/// precision training", ICLR 2018, section 3.1).
struct PrecisionPolicy {
  at::ScalarType compute = at::kFloat;
  at::ScalarType gradient = at::kFloat;
  at::ScalarType reduce = at::kFloat;
  at::ScalarType master = at::kFloat;
  bool operator==(const PrecisionPolicy&) const = default;

  bool has_own_master() const { return master != compute; }
};

/// By name: "fp32", "tf32" (the same types), "fp64", "bf16" or "fp16", with gradients added up and reduced in the
/// master type. Another name is Error(kUsage).
inline PrecisionPolicy make_precision_policy(const std::string& name) {
  if (name == "fp32" || name == "tf32") {
    return {at::kFloat, at::kFloat, at::kFloat, at::kFloat};
  }
  if (name == "fp64") {
    return {at::kDouble, at::kDouble, at::kDouble, at::kDouble};
  }
  if (name == "bf16" || name == "fp16") {
    return {name == "bf16" ? at::kBFloat16 : at::kHalf, at::kFloat, at::kFloat, at::kFloat};
  }
  throw Error(ErrorClass::kUsage, str("precision '", name, "' is unknown; allowed: fp32, fp64, tf32, bf16, fp16"));
}

}  // namespace vit_hybrid::zero
