// AdamRule: Adam and AdamW.
#pragma once

#include "parallel/zero/update_rule.h"

namespace vit_hybrid::zero {

/// As torch.optim.Adam, which adds weight decay to the gradient, or AdamW, which takes it from the weights (without
/// amsgrad): D. P. Kingma and J. Ba, "Adam", ICLR 2015, algorithm 1; I. Loshchilov and F. Hutter, ICLR 2019,
/// algorithm 2.
class AdamRule final : public UpdateRule {
 public:
  explicit AdamRule(const OptimizerOptions& options) : options_(options) {}

  std::vector<std::string> state_names() const override { return {"exp_avg", "exp_avg_sq"}; }
  void apply(const UpdateTensors& tensors, const StepScalars& step, double weight_decay, double trust) const override;

 private:
  OptimizerOptions options_;
};

}  // namespace vit_hybrid::zero
