// OptimizerOptions: which optimizer a run has, and its hyperparameters.
#pragma once

#include <array>
#include <string>

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

}  // namespace vit_hybrid::zero
