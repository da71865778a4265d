// LambRule: Adam with a step that is in proportion to each layer's weights.
#pragma once

#include "parallel/zero/rules/update_rule.h"

namespace vit_hybrid::zero {

/// Y. You et al., "Large batch optimization for deep learning: training BERT in 76 minutes", ICLR 2020,
/// arXiv:1904.00962, algorithm 2, with phi(z) = z and without bounds:
///   u = m^ / (sqrt(v^) + eps) + weight_decay w;  w <- w - lr trust u,  trust = |w| / |u|,
/// and 1 where |w| or |u| is 0; m^ and v^ are Adam's moments with bias correction. Norms are those of the whole
/// parameter (q, k and v are one). So far as timm and apex; they also clip the gradient to norm 1 unless told otherwise
/// (here: clip_norm), and scale just what decays. Here the steps of all matrices are scaled, whether weight_decay is 0
/// or not; vectors (biases, norms, positions) are neither scaled nor decayed, unless decay_vectors says that they are
/// treated as matrices.
class LambRule final : public UpdateRule {
 public:
  LambRule(const OptimizerOptions& options, bool on_host) : options_(options), on_host_(on_host) {}

  std::vector<std::string> state_names() const override { return {"exp_avg", "exp_avg_sq"}; }
  bool is_layerwise() const override { return true; }
  /// Updates the moments.
  void prepare(const UpdateTensors& tensors, const StepScalars& step, double weight_decay,
               const at::Tensor& sums) const override;
  double trust_ratio(double weight_norm, double update_norm, double weight_decay) const override;
  /// Updates the weights from the moments, with the update computed anew: it is nowhere kept.
  void apply(const UpdateTensors& tensors, const StepScalars& step, double weight_decay, double trust) const override;

 private:
  OptimizerOptions options_;
  bool on_host_;
};

}  // namespace vit_hybrid::zero
