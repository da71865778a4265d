// LayerNorm by LibTorch's kernels.
#include "model/layer_norm.h"

#include <ATen/ops/native_layer_norm.h>
#include <ATen/ops/native_layer_norm_backward.h>

#include "parallel/tensor/own_node.h"

namespace vit_hybrid::model {

LayerNorm::LayerNorm(tensor::ParameterBuffer& buffer, const std::string& name, double eps)
    : weight_(buffer.parameter(name + ".weight")), bias_(buffer.parameter(name + ".bias")), eps_(eps) {}

at::Tensor LayerNorm::forward(const at::Tensor& x, const tensor::StepContext& context) const {
  const auto [y, mean, inverse_deviation] = tensor::without_grad(
      [&] { return at::native_layer_norm(x, weight_.value.sizes(), weight_.value, bias_.value, eps_); });
  const auto backward = [this, x, mean = mean, inverse_deviation = inverse_deviation,
                         &context](const at::Tensor& gradient) {
    const auto [dx, dweight, dbias] =
        at::native_layer_norm_backward(gradient.contiguous(), x, weight_.value.sizes(), mean, inverse_deviation,
                                       weight_.value, bias_.value, {true, true, true});
    weight_.gradient.add_(dweight);
    bias_.gradient.add_(dbias);
    context.ready(weight_.index);
    context.ready(bias_.index);
    return std::vector<at::Tensor>{dx};
  };
  return tensor::record("LayerNorm", y, {x}, backward);
}

}  // namespace vit_hybrid::model
