// Linear layers over the tensor axis: whole, cut by columns (outputs), cut by rows (inputs).
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "parallel/comm/communicator.h"
#include "parallel/tensor/linear_products.h"
#include "parallel/tensor/step_context.h"

namespace vit_hybrid::tensor {

/// y = x W^T + b with the whole weight on every tensor rank. Backward adds dW and db into the gradient views.
class Linear {
 public:
  /// Parameters `name`.weight and, if it has one, `name`.bias.
  Linear(const ParameterBuffer& buffer, const std::string& name, Terms terms) : products_(buffer, name, terms) {}
  /// x [..., K] -> [..., M].
  at::Tensor forward(const at::Tensor& x, const StepContext& context);

 private:
  LinearProducts products_;
};

/// What ColumnParallelLinear::forward_gelu() keeps for backward beside its input.
enum class Keep {
  kPreActivation,
  kInputOnly,  ///< backward computes the pre-activation again, the same bits by one more product
};

/// y_r = x W_r^T + b_r: this rank's outputs from the whole input (M. Shoeybi et al., "Megatron-LM", 2019, section 3).
/// The copy to the tensor region is part of it: backward sums the input's gradient over the group, while the
/// weight's gradient is computed.
class ColumnParallelLinear {
 public:
  ColumnParallelLinear(const ParameterBuffer& buffer, const std::string& name, Terms terms, comm::Communicator& group)
      : products_(buffer, name, terms), group_(group) {}
  /// x [..., K], the same on all ranks -> [..., M_r]. Its backward is collective over tensor.
  at::Tensor forward(const at::Tensor& x, const StepContext& context);
  /// gelu(x W_r^T + b_r), GELU with erf, as one node. Its backward is collective over tensor.
  at::Tensor forward_gelu(const at::Tensor& x, const StepContext& context, Keep keep);

 private:
  LinearProducts products_;
  comm::Communicator& group_;
};

/// y = sum over r of x_r W_r^T, plus b once, after the sum (Megatron-LM, section 3): the reduction from the tensor
/// region is part of it. In a group of one it is Linear: the bias is added before the product is rounded.
class RowParallelLinear {
 public:
  RowParallelLinear(const ParameterBuffer& buffer, const std::string& name, Terms terms, comm::Communicator& group)
      : products_(buffer, name, terms), group_(group) {}
  /// x [..., K_r] -> [..., M], the same on all ranks. Collective over tensor.
  at::Tensor forward(const at::Tensor& x, const StepContext& context);

 private:
  LinearProducts products_;
  comm::Communicator& group_;
};

}  // namespace vit_hybrid::tensor
