// SgdRule and LarsRule: stochastic gradient descent with momentum, plain and with a learning rate for each layer.
#pragma once

#include "parallel/zero/rules/update_rule.h"

namespace vit_hybrid::zero {

/// As torch.optim.SGD without dampening. With g the gradient plus weight_decay times the weights:
///   buffer <- momentum buffer + g;  w <- w - lr (buffer, or g + momentum buffer with Nesterov's momentum).
/// Momentum 0 keeps no state.
class SgdRule final : public UpdateRule {
 public:
  SgdRule(const OptimizerOptions& options, bool on_host) : options_(options), on_host_(on_host) {}

  std::vector<std::string> state_names() const override;
  void apply(const UpdateTensors& tensors, const StepScalars& step, double weight_decay, double trust) const override;

 private:
  OptimizerOptions options_;
  bool on_host_;
};

/// Y. You, I. Gitman and B. Ginsburg, "Large batch training of convolutional networks", arXiv:1708.03888, algorithm 1:
///   g <- trust (gradient + weight_decay w),  trust = trust_coefficient |w| / (|gradient| + weight_decay |w|),
/// and 1 where |w| or |gradient| is 0; then SGD's momentum on g. As in timm and apex, and unlike the paper, the
/// learning rate stays out of the buffer, so that a schedule acts at once. Gradients are those after clipping. Vectors
/// (biases, norms, positions) are neither scaled nor decayed, unless decay_vectors says that they are treated as
/// matrices.
class LarsRule final : public UpdateRule {
 public:
  LarsRule(const OptimizerOptions& options, bool on_host);

  std::vector<std::string> state_names() const override { return momentum_.state_names(); }
  bool is_layerwise() const override { return true; }
  void prepare(const UpdateTensors& tensors, const StepScalars& step, double weight_decay,
               const at::Tensor& sums) const override;
  double trust_ratio(double weight_norm, double update_norm, double weight_decay) const override;
  void apply(const UpdateTensors& tensors, const StepScalars& step, double weight_decay, double trust) const override;

 private:
  double trust_coefficient_;
  SgdRule momentum_;
};

}  // namespace vit_hybrid::zero
