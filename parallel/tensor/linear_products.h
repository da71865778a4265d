// LinearProducts: the weight and bias of one linear layer with the three products of a training step.
#pragma once

#include <ATen/core/Tensor.h>

#include "parallel/tensor/parameter_buffer.h"
#include "parallel/tensor/step_context.h"

namespace vit_hybrid::tensor {

/// Which terms a product has.
enum class Terms { kWeight, kWeightAndBias };

/// Owns nothing but views of the parameters. x and dy have any leading dims: [..., K] and [..., M].
class LinearProducts {
 public:
  /// weight [M, ...] whose other dims together are K; `bias` [M] or null. Both must outlive this.
  LinearProducts(const Parameter& weight, const Parameter* bias);

  /// x W^T (+ b), [..., M].
  at::Tensor forward(const at::Tensor& x, Terms terms) const;
  /// dy W, [..., K].
  at::Tensor backward_input(const at::Tensor& dy) const;
  /// Adds dy^T x into the weight's gradient and tells the context.
  void add_weight_gradient(const at::Tensor& dy, const at::Tensor& x, const StepContext& context) const;
  /// Adds the sum of dy over all rows into the bias's gradient and tells the context; nothing without a bias.
  void add_bias_gradient(const at::Tensor& dy, const StepContext& context) const;

  bool has_bias() const { return bias_.value.defined(); }
  const at::Tensor& bias() const { return bias_.value; }

 private:
  Parameter weight_;  ///< value and gradient as matrices [M, K]
  Parameter bias_;
};

}  // namespace vit_hybrid::tensor
