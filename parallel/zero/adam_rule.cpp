// Adam by one pass over memory, on the host and on a GPU.
#include "parallel/zero/adam_rule.h"

#include <cmath>

#include "parallel/zero/cuda_update.h"
#include "parallel/zero/host_arrays.h"
#include "parallel/zero/update_loops.h"

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

}  // namespace

void AdamRule::apply(const UpdateTensors& tensors, const StepScalars& step, double weight_decay,
                     double /*trust*/) const {
  check_stretch(tensors, 2);
  if (tensors.weights.is_cuda()) {
    adam_step_cuda(tensors, step, options_, {weight_decay, {}, {}});
    return;
  }
  with_type(tensors, [&](auto zero) {
    using T = decltype(zero);
    const auto c = coefficients<T>(options_, step, weight_decay);
    T* const weights = tensors.weights.data_ptr<T>();
    T* const exp_avg = tensors.state[0].data_ptr<T>();
    T* const exp_avg_sq = tensors.state[1].data_ptr<T>();
    update_stretch<T>(tensors, [&](int64_t begin, int64_t count, const T* gradients) {
      adam_loop(weights + begin, exp_avg + begin, exp_avg_sq + begin, gradients, count, c);
    });
  });
}

}  // namespace vit_hybrid::zero
