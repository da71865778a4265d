// The matrix products of linear layers by ATen.
#include "parallel/tensor/matmul.h"

#include <ATen/ops/addmm.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/sum.h>

namespace vit_hybrid::tensor {

at::Tensor linear_forward(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  return bias.defined() ? at::addmm(bias, x, weight.t()) : at::mm(x, weight.t());
}

at::Tensor linear_backward_input(const at::Tensor& dy, const at::Tensor& weight) {
  return at::mm(dy, weight);
}

void add_weight_gradient(const at::Tensor& gradient, const at::Tensor& dy, const at::Tensor& x) {
  if (dy.size(0) == 0) {
    return;
  }
  if (gradient.scalar_type() == x.scalar_type()) {
    gradient.addmm_(dy.t(), x);
  } else {
    gradient.add_(at::mm(dy.t(), x));
  }
}

void add_bias_gradient(const at::Tensor& gradient, const at::Tensor& dy) {
  gradient.add_(at::sum(dy, {0}, false, gradient.scalar_type()));
}

}  // namespace vit_hybrid::tensor
