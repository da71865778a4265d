// LinearProducts: the weight and bias of one linear layer with the products of a training step.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "parallel/tensor/parameter_buffer.h"
#include "parallel/tensor/step_context.h"
#include "src/kernels/gemm/matmul.h"

namespace vit_hybrid::tensor {

/// The terms of a linear layer, of a product, and of its gradients.
enum class Terms { kWeight, kWeightAndBias };

/// Holds views of the parameters, and a packed copy of the weight where the products want one, renewed when the
/// buffer's version has changed. x and dy have any leading dims: [..., K] and [..., M].
class LinearProducts {
 public:
  /// Parameters `name`.weight [M, ...], whose other dims together are K, and `name`.bias [M] if it has one.
  LinearProducts(const ParameterBuffer& buffer, const std::string& name, Terms terms);

  /// x W^T (+ b), [..., M].
  at::Tensor forward(const at::Tensor& x, Terms terms);
  /// gelu(x W^T + b), and into `pre_activation` what GELU is applied to, unless that is null: both [..., M].
  at::Tensor forward_gelu(const at::Tensor& x, at::Tensor* pre_activation);
  /// The gradient of the pre-activation from that of GELU's output; its sum over the rows is added into the bias's
  /// gradient (and the context told) on the way.
  at::Tensor backward_gelu(const at::Tensor& dy, const at::Tensor& pre_activation, const StepContext& context) const;
  /// dy W, [..., K].
  at::Tensor backward_input(const at::Tensor& dy);
  /// Adds dy^T x into the weight's gradient, and with kWeightAndBias the sum of dy over all rows into the bias's if
  /// there is one, and tells the context.
  void add_gradients(const at::Tensor& dy, const at::Tensor& x, Terms terms, const StepContext& context) const;
  /// Adds the sum of dy over all rows into the bias's gradient, by a kernel that depends on dy's shape alone, and tells
  /// the context; nothing without a bias.
  void add_bias_gradient(const at::Tensor& dy, const StepContext& context) const;

  bool has_bias() const { return bias_.value.defined(); }
  const at::Tensor& bias() const { return bias_.value; }

 private:
  const ParameterBuffer& buffer_;
  Parameter weight_;  ///< value and gradient as matrices [M, K]
  Parameter bias_;
  kernels::PackedWeight packed_;
};

}  // namespace vit_hybrid::tensor
