// Adam by the fused host loop, and by ATen operations.
#include "parallel/zero/adam.h"

#include <ATen/Parallel.h>
#include <ATen/ops/addcdiv.h>
#include <ATen/ops/addcmul.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/sqrt.h>

#include <cmath>

#include "parallel/zero/adam_loop.h"
#include "src/base/error.h"
#include "src/base/memory_tracker.h"
#include "src/base/text.h"

namespace vit_hybrid::zero {

namespace {

// Elements that a thread takes at least: 1 MiB of the four arrays in fp32.
constexpr int64_t kGrain = 1 << 16;

template <class T>
AdamCoefficients<T> coefficients(const AdamOptions& options, const AdamStep& step, double weight_decay) {
  const auto number = static_cast<double>(step.number);
  const bool decoupled = options.kind == AdamKind::kAdamW;
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

template <class T>
void update_on_host(const AdamTensors& tensors, const AdamCoefficients<T>& c) {
  T* weights = tensors.weights.data_ptr<T>();
  T* exp_avg = tensors.exp_avg.data_ptr<T>();
  T* exp_avg_sq = tensors.exp_avg_sq.data_ptr<T>();
  const T* gradients = tensors.gradients.const_data_ptr<T>();
  at::parallel_for(0, tensors.weights.numel(), kGrain, [&](int64_t begin, int64_t end) {
    adam_loop(weights + begin, exp_avg + begin, exp_avg_sq + begin, gradients + begin, end - begin, c);
  });
}

void check(const AdamTensors& tensors) {
  for (const at::Tensor* tensor : {&tensors.gradients, &tensors.exp_avg, &tensors.exp_avg_sq}) {
    VH_ASSERT(tensor->scalar_type() == tensors.weights.scalar_type() && tensor->numel() == tensors.weights.numel() &&
                  tensor->is_contiguous() && tensors.weights.is_contiguous(),
              str(tensor->numel(), " elements for ", tensors.weights.numel(), " weights"));
  }
}

}  // namespace

void adam_update(const AdamTensors& tensors, const AdamOptions& options, const AdamStep& step, double weight_decay) {
  check(tensors);
  if (!tensors.weights.is_cpu()) {
    adam_update_with_aten(tensors, options, step, weight_decay);
  } else if (tensors.weights.scalar_type() == at::kFloat) {
    update_on_host(tensors, coefficients<float>(options, step, weight_decay));
  } else {
    update_on_host(tensors, coefficients<double>(options, step, weight_decay));
  }
}

void adam_update_with_aten(const AdamTensors& tensors, const AdamOptions& options, const AdamStep& step,
                           double weight_decay) {
  const MemoryScope scope(MemoryClass::kWorkspaces);
  const auto c = coefficients<double>(options, step, weight_decay);
  const at::Tensor gradients = tensors.gradients.mul(c.gradient_scale).add_(tensors.weights, c.gradient_decay);
  tensors.exp_avg.mul_(c.beta1).add_(gradients, c.one_minus_beta1);
  tensors.exp_avg_sq.mul_(c.beta2).addcmul_(gradients, gradients, c.one_minus_beta2);
  const at::Tensor denominators = tensors.exp_avg_sq.sqrt().mul_(c.root_scale).add_(c.eps);
  tensors.weights.mul_(c.weight_factor).addcdiv_(tensors.exp_avg, denominators, -c.step_size);
}

}  // namespace vit_hybrid::zero
