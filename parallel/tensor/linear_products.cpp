// Flattens the leading dims and hands the products to matmul.h.
#include "parallel/tensor/linear_products.h"

#include <algorithm>

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
  return with_leading_dims(linear_forward(as_matrix(x), packed_, buffer_.version(), bias), x);
}

at::Tensor LinearProducts::backward_input(const at::Tensor& dy) const {
  return with_leading_dims(linear_backward_input(as_matrix(dy), weight_.value), dy);
}

void LinearProducts::add_weight_gradient(const at::Tensor& dy, const at::Tensor& x, const StepContext& context) const {
  tensor::add_weight_gradient(weight_.gradient, as_matrix(dy), as_matrix(x));
  context.ready(weight_.index);
}

void LinearProducts::add_bias_gradient(const at::Tensor& dy, const StepContext& context) const {
  if (!has_bias()) {
    return;
  }
  tensor::add_bias_gradient(bias_.gradient, as_matrix(dy));
  context.ready(bias_.index);
}

}  // namespace vit_hybrid::tensor
