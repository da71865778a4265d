// ColumnParallelLinear and RowParallelLinear (Megatron's), the products in them, and the sums over the tensor axis at
// the ends of a tensor-parallel region.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>

#include "parallel/comm/communicator.h"
#include "parallel/tensor/parameter_buffer.h"
#include "parallel/tensor/step_context.h"
#include "src/kernels/gemm/matmul.h"

namespace vit_hybrid::tensor {

/// Starts the sum of `partial` (contiguous) over the group, in place: forward where a region ends (Megatron-LM's g),
/// backward where it begins (its f). A group of one costs nothing. Collective over tensor.
comm::Work start_region_sum(const at::Tensor& partial, comm::Communicator& group);

/// The bias of a layer, whose gradient is the sum over the rows of that of the layer's output: who passes over these
/// anyway takes it upon itself before backward, adds the sum and tells the context. Else the layer does.
struct OutputBias {
  Parameter parameter;
  bool is_taken = false;
};

/// The output of a RowParallelLinear while its sum is on its way: what is computed meanwhile hides it.
struct RegionSum {
  at::Tensor y = {};     ///< on the graph; its values are there after finish(), and nobody may touch them before
  comm::Work work = {};  ///< the sum over the group
  at::Tensor bias = {};  ///< to be added to the sum; undefined: none, or done
  std::shared_ptr<OutputBias> output_bias = {};  ///< null: the layer has none

  bool defined() const { return y.defined(); }
  /// Waits for the sum; the whole output. Once.
  at::Tensor finish() &&;
};

/// The terms of a linear layer, of a product, and of its gradients.
enum class Terms { kWeight, kWeightAndBias };

/// Holds views of the parameters, and a packed copy of the weight where the products want one, renewed when the
/// buffer's version has changed. x and dy have any leading dims: [..., K] and [..., M].
class LinearProducts {
 public:
  /// Parameters `name`.weight [M, ...], whose other dims together are K, and `name`.bias [M] if it has one.
  /// `bias_apart`: a kernel of its own adds up the bias's gradient. Several tensor ranks that hold the bias whole must
  /// come to the same bits, and what cuBLASLt fuses adds in an order that it does not tell.
  LinearProducts(const ParameterBuffer& buffer, const std::string& name, Terms terms, bool bias_apart);

  /// x W^T (+ b), [..., M].
  at::Tensor forward(const at::Tensor& x, Terms terms);
  /// gelu(x W^T + b), and into `pre_activation` what GELU is applied to, unless that is null: both [..., M].
  at::Tensor forward_gelu(const at::Tensor& x, kernels::GeluKind kind, at::Tensor* pre_activation);
  /// What forward_gelu() puts into `pre_activation`, the same bits.
  at::Tensor pre_activation(const at::Tensor& x, kernels::GeluKind kind);
  /// The gradient of the pre-activation from that of GELU's output; its sum over the rows is added into the bias's
  /// gradient (and the context told) on the way.
  at::Tensor backward_gelu(const at::Tensor& dy, const at::Tensor& pre_activation, kernels::GeluKind kind,
                           const StepContext& context) const;
  /// dy W, [..., K].
  at::Tensor backward_input(const at::Tensor& dy);
  /// The gradient of z [..., K], where the input was gelu(z): dy W times GELU's slope.
  at::Tensor backward_gelu_input(const at::Tensor& dy, const at::Tensor& z, kernels::GeluKind kind);
  /// Whether that is one kernel for `rows` rows.
  bool fuses_gelu_backward(int64_t rows, kernels::GeluKind kind) const {
    return kernels::fuses_gelu_backward(packed_, rows, kind);
  }
  /// Adds dy^T x into the weight's gradient, and with kWeightAndBias the sum of dy over all rows into the bias's if
  /// there is one, and tells the context.
  void add_gradients(const at::Tensor& dy, const at::Tensor& x, Terms terms, const StepContext& context) const;

  bool has_bias() const { return bias_.value.defined(); }
  const Parameter& bias() const { return bias_; }

 private:
  const ParameterBuffer& buffer_;
  Parameter weight_;  ///< value and gradient as matrices [M, K]
  Parameter bias_;
  bool bias_apart_;
  kernels::PackedWeight packed_;
};

/// y = x W^T + b with the whole weight on every tensor rank. Backward adds dW and db into the gradient views.
class Linear {
 public:
  /// Parameters `name`.weight and, if it has one, `name`.bias.
  Linear(const ParameterBuffer& buffer, const std::string& name, Terms terms, const comm::Communicator& group)
      : products_(buffer, name, terms, /*bias_apart=*/group.size() > 1) {}
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

/// z on the graph, and gelu(z) beside it.
struct PreActivation {
  at::Tensor z;
  at::Tensor activation;
};

/// y_r = x W_r^T + b_r: this rank's outputs from the whole input (M. Shoeybi et al., "Megatron-LM", 2019, section 3).
/// The copy to the tensor region is part of it: backward sums the input's gradient over the group, while the
/// weight's gradient is computed.
class ColumnParallelLinear {
 public:
  ColumnParallelLinear(const ParameterBuffer& buffer, const std::string& name, Terms terms, comm::Communicator& group)
      : products_(buffer, name, terms, /*bias_apart=*/false), group_(group) {}
  /// x [..., K], the same on all ranks -> [..., M_r]. Its backward is collective over tensor.
  at::Tensor forward(const at::Tensor& x, const StepContext& context);
  /// gelu(x W_r^T + b_r) as one node. Its backward is collective over tensor.
  at::Tensor forward_gelu(const at::Tensor& x, kernels::GeluKind kind, const StepContext& context, Keep keep);
  /// The same with the backward of GELU left to the layer that reads it: RowParallelLinear::forward_of_gelu().
  PreActivation forward_beside_gelu(const at::Tensor& x, kernels::GeluKind kind, const StepContext& context);
  /// z of forward_beside_gelu(), the same bits, and not on the graph.
  at::Tensor pre_activation(const at::Tensor& x, kernels::GeluKind kind) { return products_.pre_activation(x, kind); }

 private:
  at::Tensor recorded(const at::Tensor& y, const at::Tensor& x, const StepContext& context);

  LinearProducts products_;
  comm::Communicator& group_;
};

/// y = sum over r of x_r W_r^T, plus b once, after the sum (Megatron-LM, section 3): the reduction from the tensor
/// region is part of it. In a group of one the bias is added before the product is rounded, as by Linear. The bias's
/// gradient is left to who takes the output's OutputBias.
class RowParallelLinear {
 public:
  RowParallelLinear(const ParameterBuffer& buffer, const std::string& name, Terms terms, comm::Communicator& group)
      : products_(buffer, name, terms, /*bias_apart=*/true), group_(group) {}
  /// x [..., K_r] -> [..., M], the same on all ranks when it is finished. Collective over tensor.
  RegionSum forward(const at::Tensor& x, const StepContext& context);
  /// The same of x = gelu(z): its backward gives the gradient of z.
  RegionSum forward_of_gelu(const PreActivation& x, kernels::GeluKind kind, const StepContext& context);
  /// Whether GELU's backward is a part of the product for `rows` rows, which is what forward_of_gelu() is for.
  bool fuses_gelu_backward(int64_t rows, kernels::GeluKind kind) const {
    return products_.fuses_gelu_backward(rows, kind);
  }

 private:
  RegionSum start_sum(const at::Tensor& x);
  void add_gradients(const at::Tensor& dy, const at::Tensor& x, const std::shared_ptr<OutputBias>& bias,
                     const StepContext& context) const;

  LinearProducts products_;
  comm::Communicator& group_;
};

}  // namespace vit_hybrid::tensor
