// Adam by the fused host loop, and by ATen operations.
#include "parallel/zero/adam_rule.h"

#include <ATen/ops/addcdiv.h>
#include <ATen/ops/addcmul.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/sqrt.h>

#include <cmath>

#include "parallel/zero/host_arrays.h"
#include "parallel/zero/update_loops.h"
#include "src/base/memory_tracker.h"

namespace vit_hybrid::zero {

namespace {

template <class T>
AdamCoefficients<T> coefficients(const OptimizerOptions& options, const StepScalars& step, double weight_decay) {
  const auto number = static_cast<double>(step.number);
  const bool decoupled = options.kind == OptimizerKind::kAdamW;
  AdamCoefficients<T> c{};
  c.gradient_scale = static_cast<T>(step.gradient_scale);
  c.beta1 = static_cast<T>(options.beta1);
  c.one_minus_beta1 = static_cast<T>(1.0 - options.beta1);
  c.beta2 = static_cast<T>(options.beta2);
  c.one_minus_beta2 = static_cast<T>(1.0 - options.beta2);
  c.step_size = static_cast<T>(step.lr / (1.0 - std::pow(options.beta1, number)));
  c.root_scale = static_cast<T>(1.0 / std::sqrt(1.0 - std::pow(options.beta2, number)));
  c.eps = static_cast<T>(options.eps);
  c.weight_factor = static_cast<T>(decoupled ? 1.0 - step.lr * weight_decay : 1.0);
  c.gradient_decay = static_cast<T>(decoupled ? 0.0 : weight_decay);
  return c;
}

void update_with_aten(const UpdateTensors& tensors, const AdamCoefficients<double>& c) {
  const MemoryScope scope(MemoryClass::kWorkspaces);
  const at::Tensor& exp_avg = tensors.state[0];
  const at::Tensor& exp_avg_sq = tensors.state[1];
  const at::Tensor gradients = tensors.gradients.mul(c.gradient_scale).add_(tensors.weights, c.gradient_decay);
  exp_avg.mul_(c.beta1).add_(gradients, c.one_minus_beta1);
  exp_avg_sq.mul_(c.beta2).addcmul_(gradients, gradients, c.one_minus_beta2);
  const at::Tensor denominators = exp_avg_sq.sqrt().mul_(c.root_scale).add_(c.eps);
  tensors.weights.mul_(c.weight_factor).addcdiv_(exp_avg, denominators, -c.step_size);
}

}  // namespace

void AdamRule::apply(const UpdateTensors& tensors, const StepScalars& step, double weight_decay,
                     double /*trust*/) const {
  check_stretch(tensors, 2);
  if (!on_host_) {
    update_with_aten(tensors, coefficients<double>(options_, step, weight_decay));
    return;
  }
  with_type(tensors, [&](auto zero) {
    using T = decltype(zero);
    const auto c = coefficients<T>(options_, step, weight_decay);
    T* const weights = tensors.weights.data_ptr<T>();
    T* const exp_avg = tensors.state[0].data_ptr<T>();
    T* const exp_avg_sq = tensors.state[1].data_ptr<T>();
    const T* const gradients = tensors.gradients.const_data_ptr<T>();
    for_parts(tensors, [&](int64_t begin, int64_t count) {
      adam_loop(weights + begin, exp_avg + begin, exp_avg_sq + begin, gradients + begin, count, c);
    });
  });
}

}  // namespace vit_hybrid::zero
