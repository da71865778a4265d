// LAMB by the fused host loops, and by ATen operations.
#include "parallel/zero/rules/lamb_rule.h"

#include <ATen/ops/addcmul.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/sqrt.h>

#include "parallel/zero/rules/adam_kernel.h"
#include "parallel/zero/rules/host_arrays.h"
#include "parallel/zero/rules/sum_of_squares.h"
#include "parallel/zero/rules/update_loops.h"
#include "src/base/memory_tracker.h"

namespace vit_hybrid::zero {

namespace {

template <class T>
LambCoefficients<T> coefficients(const OptimizerOptions& options, const StepScalars& step, double weight_decay,
                                 double trust) {
  LambCoefficients<T> c{};
  set_betas(c, options);
  set_moments_of_step(c, step);
  c.mean_scale = static_cast<T>(step.mean_scale);
  c.weight_decay = static_cast<T>(weight_decay);
  c.step_size = static_cast<T>(step.lr * trust);
  return c;
}

at::Tensor update_by_aten(const UpdateTensors& tensors, const LambCoefficients<double>& c) {
  const at::Tensor denominators = tensors.state[1].sqrt().mul_(c.root_scale).add_(c.eps);
  return tensors.state[0].mul(c.mean_scale).div_(denominators).add_(tensors.weights, c.weight_decay);
}

void prepare_with_aten(const UpdateTensors& tensors, const LambCoefficients<double>& c, const at::Tensor& sums) {
  const at::Tensor gradients = tensors.gradients.to(tensors.weights.scalar_type()).mul(c.gradient_scale);
  tensors.state[0].mul_(c.beta1).add_(gradients, c.one_minus_beta1);
  tensors.state[1].mul_(c.beta2).addcmul_(gradients, gradients, c.one_minus_beta2);
  sums.select(0, 0).add_(sum_of_squares_there(tensors.weights));
  sums.select(0, 1).add_(sum_of_squares_there(update_by_aten(tensors, c)));
}

template <class T>
SquareSums prepare_on_host(const UpdateTensors& tensors, const LambCoefficients<T>& c) {
  const T* const weights = tensors.weights.const_data_ptr<T>();
  T* const exp_avg = tensors.state[0].data_ptr<T>();
  T* const exp_avg_sq = tensors.state[1].data_ptr<T>();
  return sum_over_blocks<SquareSums>(tensors.weights.numel(), [&](int64_t begin, int64_t count) {
    SquareSums sums;
    std::array<T, kChunk> buffer;
    for (int64_t i = begin; i < begin + count; i += kChunk) {
      const int64_t size = std::min(kChunk, begin + count - i);
      const T* const gradients = widened(tensors.gradients, i, size, buffer.data());
      sums += lamb_prepare_loop(weights + i, exp_avg + i, exp_avg_sq + i, gradients, size, c);
    }
    return sums;
  });
}

template <class T>
void apply_on_host(const UpdateTensors& tensors, const LambCoefficients<T>& c) {
  T* const weights = tensors.weights.data_ptr<T>();
  const T* const exp_avg = tensors.state[0].const_data_ptr<T>();
  const T* const exp_avg_sq = tensors.state[1].const_data_ptr<T>();
  update_stretch<T>(tensors, [&](int64_t begin, int64_t count, const T* /*gradients*/) {
    lamb_apply_loop(weights + begin, exp_avg + begin, exp_avg_sq + begin, count, c);
  });
}

}  // namespace

void LambRule::prepare(const UpdateTensors& tensors, const StepScalars& step, double weight_decay,
                       const at::Tensor& sums) const {
  check_stretch(tensors, 2);
  if (!on_host_) {
    const MemoryScope scope(MemoryClass::kWorkspaces);
    prepare_with_aten(tensors, coefficients<double>(options_, step, weight_decay, 1.0), sums);
    return;
  }
  with_type(tensors, [&](auto zero) {
    const auto added = prepare_on_host(tensors, coefficients<decltype(zero)>(options_, step, weight_decay, 1.0));
    auto* const of_parameter = sums.data_ptr<double>();
    of_parameter[0] += added.weights;
    of_parameter[1] += added.update;
  });
}

double LambRule::trust_ratio(double weight_norm, double update_norm, double /*weight_decay*/) const {
  return weight_norm > 0.0 && update_norm > 0.0 ? weight_norm / update_norm : 1.0;
}

void LambRule::apply(const UpdateTensors& tensors, const StepScalars& step, double weight_decay, double trust) const {
  check_stretch(tensors, 2);
  if (!on_host_) {
    const MemoryScope scope(MemoryClass::kWorkspaces);
    const auto c = coefficients<double>(options_, step, weight_decay, trust);
    tensors.weights.add_(update_by_aten(tensors, c), -c.step_size);
    cast_parameters(tensors);
    return;
  }
  with_type(tensors, [&](auto zero) {
    apply_on_host(tensors, coefficients<decltype(zero)>(options_, step, weight_decay, trust));
  });
}

}  // namespace vit_hybrid::zero
