// TextbookOptimizer: the optimizers as their papers have them, for one whole parameter; what ours are tested against.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <string>

#include "parallel/zero/optimizer_options.h"

namespace vit_hybrid::testing {

/// ATen operations on fp64 tensors, with nothing of the program's but the names of its options.
class TextbookOptimizer {
 public:
  /// A vector (bias, norm, position) neither decays nor is it scaled by a trust ratio, unless options.decay_vectors.
  TextbookOptimizer(const zero::OptimizerOptions& options, const at::Tensor& weights, bool is_matrix);

  void step(const at::Tensor& gradient, double lr);
  const at::Tensor& weights() const { return w_; }
  /// By PyTorch's names: "exp_avg".
  const std::map<std::string, at::Tensor>& states() const { return states_; }

 private:
  void adam(const at::Tensor& gradient, double lr);
  void momentum(const at::Tensor& gradient, double lr);
  void lamb(const at::Tensor& gradient, double lr);
  void lars(const at::Tensor& gradient, double lr);
  at::Tensor direction(const at::Tensor& gradient);

  zero::OptimizerOptions options_;
  bool is_matrix_;
  double decay_;
  at::Tensor w_;
  std::map<std::string, at::Tensor> states_;
  double t_ = 0;
};

}  // namespace vit_hybrid::testing
