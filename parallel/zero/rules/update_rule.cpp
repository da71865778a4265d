// make_update_rule(): the rule of each optimizer by its name; and what rules inherit.
#include "parallel/zero/rules/update_rule.h"

#include "parallel/zero/rules/adam_rule.h"
#include "parallel/zero/rules/lamb_rule.h"
#include "parallel/zero/rules/momentum_rules.h"
#include "src/base/error.h"

namespace vit_hybrid::zero {

void cast_parameters(const UpdateTensors& tensors) {
  if (tensors.parameters.defined()) {
    tensors.parameters.copy_(tensors.weights);
  }
}

void UpdateRule::prepare(const UpdateTensors& /*tensors*/, const StepScalars& /*step*/, double /*weight_decay*/,
                         const at::Tensor& /*sums*/) const {
  VH_ASSERT(false, "this rule has one pass");
}

double UpdateRule::trust_ratio(double /*weight_norm*/, double /*update_norm*/, double /*weight_decay*/) const {
  return 1.0;
}

void UpdateRule::apply_to_owned(const OwnedTensors& /*owned*/, const at::Tensor& /*step*/) const {
  VH_ASSERT(false, "this rule updates stretch by stretch");
}

std::unique_ptr<UpdateRule> make_update_rule(const OptimizerOptions& options, at::DeviceType device) {
  const bool on_host = device == at::kCPU;
  switch (options.kind) {
    case OptimizerKind::kAdam:
    case OptimizerKind::kAdamW:
      return std::make_unique<AdamRule>(options, on_host);
    case OptimizerKind::kSgd:
      return std::make_unique<SgdRule>(options, on_host);
    case OptimizerKind::kLamb:
      return std::make_unique<LambRule>(options, on_host);
    case OptimizerKind::kLars:
      return std::make_unique<LarsRule>(options, on_host);
  }
  VH_ASSERT(false, "no such optimizer");
}

std::vector<std::string> optimizer_state_names(const OptimizerOptions& options) {
  return make_update_rule(options, at::kCPU)->state_names();
}

}  // namespace vit_hybrid::zero
