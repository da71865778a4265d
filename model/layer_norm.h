// LayerNorm over the features, with its own backward into the gradient views.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "model/layer.h"
#include "parallel/tensor/parameter_buffer.h"
#include "parallel/tensor/step_context.h"
#include "src/kernels/layer_norm.h"

namespace vit_hybrid::model {

/// A residual stream where a branch leaves it: `stream` goes on, `normed` = LN(stream) enters the branch. In backward
/// the gradients of both become one in the pass of the norm.
struct Fork {
  at::Tensor stream;
  at::Tensor normed;
};

/// LN(x) = (x - mean) / sqrt(var + eps) * weight + bias over the last dim (J. L. Ba et al., 2016). Every tensor rank
/// has the whole x, so that the gradients are the same on all of them without a reduction. The graph keeps x (or the
/// sum), and mean and 1/deviation of each row.
class LayerNorm {
 public:
  /// Parameters `name`.weight and `name`.bias, each [D].
  LayerNorm(tensor::ParameterBuffer& buffer, const std::string& name, double eps);
  /// LN(x), x [..., D].
  at::Tensor forward(const at::Tensor& x, const tensor::StepContext& context) const;
  /// The sum of the stream, whose branch is waited for, and its norm: in one pass where there is a branch to add, the
  /// same bits as in two. Where nothing of the branch is dropped, backward takes its bias's gradient along.
  Fork fork(ResidualStream stream, const tensor::StepContext& context) const;

 private:
  Fork fork_sum(const at::Tensor& x, const tensor::StepContext& context) const;
  Fork add_and_fork(ResidualStream stream, const tensor::StepContext& context) const;
  // `added`: a bias in x whose gradient is taken upon the norm; may be null.
  at::Tensor backward(const at::Tensor& dy, const kernels::NormInput& input, const at::Tensor& residual_gradient,
                      const tensor::OutputBias* added, const tensor::StepContext& context) const;

  tensor::Parameter weight_;
  tensor::Parameter bias_;
  double eps_;
};

}  // namespace vit_hybrid::model
