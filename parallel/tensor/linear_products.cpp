// Flattens the leading dims and hands the products to matmul.h.
#include "parallel/tensor/linear_products.h"

#include <algorithm>

#include "src/kernels/gelu.h"
#include "src/kernels/gemm/column_sums.h"

namespace vit_hybrid::tensor {

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

LinearProducts::LinearProducts(const ParameterBuffer& buffer, const std::string& name, Terms terms)
    : buffer_(buffer), weight_(buffer.parameter(name + ".weight")), packed_(flat_rows(weight_.value)) {
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

at::Tensor LinearProducts::forward_gelu(const at::Tensor& x, at::Tensor* pre_activation) {
  at::Tensor y = kernels::linear_gelu_forward(as_matrix(x), packed_, buffer_.version(), bias_.value, pre_activation);
  if (pre_activation != nullptr) {
    *pre_activation = with_leading_dims(*pre_activation, x);
  }
  return with_leading_dims(y, x);
}

at::Tensor LinearProducts::backward_gelu(const at::Tensor& dy, const at::Tensor& pre_activation,
                                         const StepContext& context) const {
  const at::Tensor dz = kernels::exact_gelu_backward(as_matrix(dy), as_matrix(pre_activation), bias_.gradient);
  if (has_bias()) {
    context.ready(bias_.index);
  }
  return with_leading_dims(dz, dy);
}

at::Tensor LinearProducts::backward_input(const at::Tensor& dy) {
  return with_leading_dims(kernels::linear_backward_input(as_matrix(dy), packed_, buffer_.version()), dy);
}

void LinearProducts::add_gradients(const at::Tensor& dy, const at::Tensor& x, Terms terms,
                                   const StepContext& context) const {
  const bool with_bias = terms == Terms::kWeightAndBias && has_bias();
  kernels::add_weight_gradient(weight_.gradient, as_matrix(dy), as_matrix(x),
                               with_bias ? bias_.gradient : at::Tensor());
  context.ready(weight_.index);
  if (with_bias) {
    context.ready(bias_.index);
  }
}

void LinearProducts::add_bias_gradient(const at::Tensor& dy, const StepContext& context) const {
  if (has_bias()) {
    kernels::add_column_sums(bias_.gradient, as_matrix(dy));
    context.ready(bias_.index);
  }
}

}  // namespace vit_hybrid::tensor
