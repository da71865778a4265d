// LayerNorm as a layer: its autograd nodes, alone and together with the residual sum; the kernels are
// src/kernels/layer_norm.
#include "model/layer_norm.h"

#include <memory>
#include <utility>

#include "src/base/autograd_node.h"

namespace vit_hybrid::model {

namespace {

at::Tensor contiguous_or_undefined(const at::Tensor& x) {
  return x.defined() ? x.contiguous() : x;
}

}  // namespace

LayerNorm::LayerNorm(tensor::ParameterBuffer& buffer, const std::string& name, double eps)
    : weight_(buffer.parameter(name + ".weight")), bias_(buffer.parameter(name + ".bias")), eps_(eps) {}

at::Tensor LayerNorm::backward(const at::Tensor& dy, const kernels::NormInput& input,
                               const at::Tensor& residual_gradient, const tensor::OutputBias* added,
                               const tensor::StepContext& context) const {
  const kernels::NormGradients gradients{weight_.gradient, bias_.gradient,
                                         added != nullptr ? added->parameter.gradient : at::Tensor()};
  at::Tensor dx = kernels::layer_norm_backward(dy.contiguous(), input, weight_.value,
                                               contiguous_or_undefined(residual_gradient), gradients);
  context.ready(weight_.index);
  context.ready(bias_.index);
  if (added != nullptr) {
    context.ready(added->parameter.index);
  }
  return dx;
}

at::Tensor LayerNorm::forward(const at::Tensor& x, const tensor::StepContext& context) const {
  const at::Tensor rows = without_grad([&] { return x.detach().contiguous(); });
  const auto [y, mean, rstd] = kernels::layer_norm(rows, weight_.value, bias_.value, eps_);
  const kernels::NormInput input{rows, mean, rstd};
  return record("LayerNorm", y, {x}, [this, input, &context](const at::Tensor& dy) {
    return std::vector<at::Tensor>{backward(dy, input, at::Tensor(), nullptr, context)};
  });
}

Fork LayerNorm::fork(ResidualStream stream, const tensor::StepContext& context) const {
  return stream.has_branch() ? add_and_fork(std::move(stream), context) : fork_sum(stream.x, context);
}

Fork LayerNorm::fork_sum(const at::Tensor& x, const tensor::StepContext& context) const {
  const at::Tensor rows = without_grad([&] { return x.detach().contiguous(); });
  const auto [y, mean, rstd] = kernels::layer_norm(rows, weight_.value, bias_.value, eps_);
  const kernels::NormInput input{rows, mean, rstd};
  const auto outputs = record_jointly("LayerNormFork", {x, y}, {x}, [this, input, &context](const auto& dxy) {
    return std::vector<at::Tensor>{backward(dxy[1], input, dxy[0], nullptr, context)};
  });
  return {outputs[0], outputs[1]};
}

Fork LayerNorm::add_and_fork(ResidualStream stream, const tensor::StepContext& context) const {
  std::shared_ptr<tensor::OutputBias> added;
  if (!stream.branch.features.drops(context) && !stream.path.drops(context)) {
    added = stream.branch.output.output_bias;
  }
  if (added != nullptr) {
    added->is_taken = true;
  }
  const at::Tensor branch = std::move(stream.branch).finish(context);
  const at::Tensor scales = kernels::path_scales(branch, stream.path, context);
  const auto [sum, normed] = without_grad([&] {
    return kernels::residual_layer_norm(stream.x.contiguous(), branch.detach(), scales, weight_.value, bias_.value,
                                        eps_);
  });
  const kernels::NormInput input{sum, normed.mean, normed.rstd};
  const auto backward = [this, input, scales, added, &context](const auto& gradients) {
    const at::Tensor dsum = this->backward(gradients[1], input, gradients[0], added.get(), context);
    return std::vector<at::Tensor>{dsum, kernels::branch_gradient(dsum, scales)};
  };
  const auto outputs = record_jointly("LayerNormResidual", {sum, normed.y}, {stream.x, branch}, backward);
  return {outputs[0], outputs[1]};
}

}  // namespace vit_hybrid::model
