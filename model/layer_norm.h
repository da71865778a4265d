// LayerNorm over the features, with its own backward into the gradient views.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "parallel/tensor/parameter_buffer.h"
#include "parallel/tensor/step_context.h"

namespace vit_hybrid::model {

/// y = (x - mean) / sqrt(var + eps) * weight + bias over the last dim (J. L. Ba et al., 2016). Every tensor rank has
/// the whole x, so that the gradients are the same on all of them without a reduction.
class LayerNorm {
 public:
  /// Parameters `name`.weight and `name`.bias, each [D].
  LayerNorm(tensor::ParameterBuffer& buffer, const std::string& name, double eps);
  /// x [..., D]; the graph keeps x, and mean and 1/deviation of each row.
  at::Tensor forward(const at::Tensor& x, const tensor::StepContext& context) const;

 private:
  tensor::Parameter weight_;
  tensor::Parameter bias_;
  double eps_;
};

}  // namespace vit_hybrid::model
