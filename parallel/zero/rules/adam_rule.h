// AdamRule: Adam and AdamW.
#pragma once

#include "parallel/zero/rules/update_rule.h"

namespace vit_hybrid::zero {

/// As torch.optim.Adam, which adds weight decay to the gradient, or AdamW, which takes it from the weights (without
/// amsgrad): D. P. Kingma and J. Ba, "Adam", ICLR 2015, algorithm 1; I. Loshchilov and F. Hutter, ICLR 2019,
/// algorithm 2. On a GPU it updates all that a rank owns by one kernel.
class AdamRule final : public UpdateRule {
 public:
  AdamRule(const OptimizerOptions& options, bool on_host) : options_(options), on_host_(on_host) {}

  std::vector<std::string> state_names() const override { return {"exp_avg", "exp_avg_sq"}; }
  bool updates_at_once() const override { return !on_host_; }
  void apply_to_owned(const OwnedTensors& owned, const at::Tensor& step) const override;
  void apply(const UpdateTensors& tensors, const StepScalars& step, double weight_decay, double trust) const override;

 private:
  OptimizerOptions options_;
  bool on_host_;
};

}  // namespace vit_hybrid::zero
