// Linear layers as autograd nodes: products by matmul.h, all-reduces of the tensor axis.
#include "parallel/tensor/linear.h"

#include <algorithm>
#include <utility>

#include "src/base/autograd_node.h"
#include "src/base/error.h"
#include "src/kernels/gelu.h"
#include "src/kernels/gemm/epilogue.h"

namespace vit_hybrid::tensor {

comm::Work start_region_sum(const at::Tensor& partial, comm::Communicator& group) {
  // A copy would be summed in its stead, and the caller would go on with its own part.
  VH_ASSERT(partial.is_contiguous(), "a partial result to be summed must be contiguous");
  return group.all_reduce(partial, comm::ReduceOp::kSum);
}

at::Tensor RegionSum::finish() && {
  work.wait();
  if (bias.defined()) {
    y.detach().add_(bias);  // backward reads no values of the output
  }
  return std::move(y);
}

namespace {

at::Tensor as_matrix(const at::Tensor& x) {
  return x.dim() == 2 ? x : x.reshape({x.numel() / std::max<int64_t>(x.size(-1), 1), x.size(-1)});
}

// `matrix` with the leading dims of `like`.
at::Tensor with_leading_dims(const at::Tensor& matrix, const at::Tensor& like) {
  if (like.dim() == 2) {
    return matrix;
  }
  auto shape = like.sizes().vec();
  shape.back() = matrix.size(1);
  return matrix.view(shape);
}

at::Tensor flat_rows(const at::Tensor& weight) {
  return weight.dim() == 2 ? weight : weight.view({weight.size(0), -1});
}

}  // namespace

LinearProducts::LinearProducts(const ParameterBuffer& buffer, const std::string& name, Terms terms, bool bias_apart)
    : buffer_(buffer),
      weight_(buffer.parameter(name + ".weight")),
      bias_apart_(bias_apart),
      packed_(flat_rows(weight_.value)) {
  weight_.value = flat_rows(weight_.value);
  if (weight_.gradient.defined()) {
    weight_.gradient = flat_rows(weight_.gradient);
  }
  if (terms == Terms::kWeightAndBias) {
    bias_ = buffer.parameter(name + ".bias");
  }
}

at::Tensor LinearProducts::forward(const at::Tensor& x, Terms terms) {
  const at::Tensor bias = terms == Terms::kWeightAndBias ? bias_.value : at::Tensor();
  return with_leading_dims(kernels::linear_forward(as_matrix(x), packed_, buffer_.version(), bias), x);
}

at::Tensor LinearProducts::forward_gelu(const at::Tensor& x, kernels::GeluKind kind, at::Tensor* pre_activation) {
  at::Tensor y =
      kernels::linear_gelu_forward(as_matrix(x), packed_, buffer_.version(), bias_.value, kind, pre_activation);
  if (pre_activation != nullptr) {
    *pre_activation = with_leading_dims(*pre_activation, x);
  }
  return with_leading_dims(y, x);
}

at::Tensor LinearProducts::pre_activation(const at::Tensor& x, kernels::GeluKind kind) {
  return with_leading_dims(kernels::linear_pre_activation(as_matrix(x), packed_, buffer_.version(), bias_.value, kind),
                           x);
}

at::Tensor LinearProducts::backward_gelu(const at::Tensor& dy, const at::Tensor& pre_activation, kernels::GeluKind kind,
                                         const StepContext& context) const {
  const at::Tensor dz = kernels::gelu_backward(as_matrix(dy), as_matrix(pre_activation), kind, bias_.gradient);
  if (has_bias()) {
    context.ready(bias_.index);
  }
  return with_leading_dims(dz, dy);
}

at::Tensor LinearProducts::backward_input(const at::Tensor& dy) {
  return with_leading_dims(kernels::linear_backward_input(as_matrix(dy), packed_, buffer_.version()), dy);
}

at::Tensor LinearProducts::backward_gelu_input(const at::Tensor& dy, const at::Tensor& z, kernels::GeluKind kind) {
  return with_leading_dims(
      kernels::linear_gelu_backward_input(as_matrix(dy), packed_, buffer_.version(), kind, as_matrix(z)), dy);
}

void LinearProducts::add_gradients(const at::Tensor& dy, const at::Tensor& x, Terms terms,
                                   const StepContext& context) const {
  const bool with_bias = terms == Terms::kWeightAndBias && has_bias();
  const bool is_apart = with_bias && bias_apart_;
  if (is_apart) {
    kernels::add_column_sums(bias_.gradient, as_matrix(dy));
  }
  kernels::add_weight_gradient(weight_.gradient, as_matrix(dy), as_matrix(x),
                               with_bias && !is_apart ? bias_.gradient : at::Tensor());
  context.ready(weight_.index);
  if (with_bias) {
    context.ready(bias_.index);
  }
}

at::Tensor Linear::forward(const at::Tensor& x, const StepContext& context) {
  const at::Tensor y = without_grad([&] { return products_.forward(x, Terms::kWeightAndBias); });
  return record("Linear", y, {x}, [this, x, &context](const at::Tensor& gradient) {
    const at::Tensor dy = gradient.contiguous();
    products_.add_gradients(dy, x, Terms::kWeightAndBias, context);
    return std::vector<at::Tensor>{products_.backward_input(dy)};
  });
}

at::Tensor ColumnParallelLinear::recorded(const at::Tensor& y, const at::Tensor& x, const StepContext& context) {
  return record("ColumnParallelLinear", y, {x}, [this, x, &context](const at::Tensor& gradient) {
    const at::Tensor dy = gradient.contiguous();
    const at::Tensor dx = products_.backward_input(dy);
    comm::Work sum = start_region_sum(dx, group_);
    products_.add_gradients(dy, x, Terms::kWeightAndBias, context);
    sum.wait();
    return std::vector<at::Tensor>{dx};
  });
}

at::Tensor ColumnParallelLinear::forward(const at::Tensor& x, const StepContext& context) {
  return recorded(without_grad([&] { return products_.forward(x, Terms::kWeightAndBias); }), x, context);
}

PreActivation ColumnParallelLinear::forward_beside_gelu(const at::Tensor& x, kernels::GeluKind kind,
                                                        const StepContext& context) {
  at::Tensor z;
  const at::Tensor activation = without_grad([&] { return products_.forward_gelu(x, kind, &z); });
  return {recorded(z, x, context), activation};
}

at::Tensor ColumnParallelLinear::forward_gelu(const at::Tensor& x, kernels::GeluKind kind, const StepContext& context,
                                              Keep keep) {
  at::Tensor kept_z;
  const bool kept = keep == Keep::kPreActivation && records({x});
  const at::Tensor y = without_grad([&] { return products_.forward_gelu(x, kind, kept ? &kept_z : nullptr); });
  return record("ColumnParallelLinearGelu", y, {x}, [this, x, kind, kept_z, &context](const at::Tensor& gradient) {
    const at::Tensor z = kept_z.defined() ? kept_z : products_.pre_activation(x, kind);
    const at::Tensor dz = products_.backward_gelu(gradient.contiguous(), z, kind, context);
    const at::Tensor dx = products_.backward_input(dz);
    comm::Work sum = start_region_sum(dx, group_);
    products_.add_gradients(dz, x, Terms::kWeight, context);
    sum.wait();
    return std::vector<at::Tensor>{dx};
  });
}

RegionSum RowParallelLinear::start_sum(const at::Tensor& x) {
  // The product of a single rank is the whole sum: it takes the bias along.
  const Terms of_product = group_.size() == 1 ? Terms::kWeightAndBias : Terms::kWeight;
  RegionSum sum{without_grad([&] { return products_.forward(x, of_product); })};
  sum.work = start_region_sum(sum.y, group_);
  if (of_product == Terms::kWeight) {
    sum.bias = products_.bias().value;
  }
  if (products_.has_bias()) {
    sum.output_bias = std::make_shared<OutputBias>(OutputBias{products_.bias()});
  }
  return sum;
}

void RowParallelLinear::add_gradients(const at::Tensor& dy, const at::Tensor& x,
                                      const std::shared_ptr<OutputBias>& bias, const StepContext& context) const {
  const bool is_taken = bias != nullptr && bias->is_taken;
  products_.add_gradients(dy, x, is_taken ? Terms::kWeight : Terms::kWeightAndBias, context);
}

RegionSum RowParallelLinear::forward(const at::Tensor& x, const StepContext& context) {
  RegionSum sum = start_sum(x);
  sum.y = record("RowParallelLinear", sum.y, {x}, [this, x, bias = sum.output_bias, &context](const auto& gradient) {
    const at::Tensor dy = gradient.contiguous();
    add_gradients(dy, x, bias, context);
    return std::vector<at::Tensor>{products_.backward_input(dy)};
  });
  return sum;
}

RegionSum RowParallelLinear::forward_of_gelu(const PreActivation& x, kernels::GeluKind kind,
                                             const StepContext& context) {
  RegionSum sum = start_sum(x.activation);
  sum.y = record("RowParallelLinearOfGelu", sum.y, {x.z},
                 [this, z = x.z.detach(), activation = x.activation, kind, bias = sum.output_bias,
                  &context](const at::Tensor& gradient) {
                   const at::Tensor dy = gradient.contiguous();
                   add_gradients(dy, activation, bias, context);
                   return std::vector<at::Tensor>{products_.backward_gelu_input(dy, z, kind)};
                 });
  return sum;
}

}  // namespace vit_hybrid::tensor
