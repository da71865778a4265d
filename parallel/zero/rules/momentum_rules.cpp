// SGD and LARS by the fused host loops, and by ATen operations.
#include "parallel/zero/rules/momentum_rules.h"

#include <ATen/ops/add.h>
#include <ATen/ops/mul.h>

#include "parallel/zero/rules/host_arrays.h"
#include "parallel/zero/rules/sum_of_squares.h"
#include "parallel/zero/rules/update_loops.h"
#include "src/base/memory_tracker.h"

namespace vit_hybrid::zero {

namespace {

template <class T>
MomentumCoefficients<T> coefficients(const OptimizerOptions& options, const StepScalars& step, double weight_decay,
                                     double trust) {
  MomentumCoefficients<T> c{};
  c.gradient_scale = static_cast<T>(step.gradient_scale);
  c.weight_decay = static_cast<T>(weight_decay);
  c.trust = static_cast<T>(trust);
  c.momentum = static_cast<T>(options.momentum);
  c.from_gradient = static_cast<T>(options.nesterov ? 1.0 : 0.0);
  c.from_buffer = static_cast<T>(options.nesterov ? options.momentum : 1.0);
  c.lr = static_cast<T>(step.lr);
  return c;
}

void update_with_aten(const UpdateTensors& tensors, const MomentumCoefficients<double>& c) {
  const MemoryScope scope(MemoryClass::kWorkspaces);
  const at::Tensor gradients = tensors.gradients.to(tensors.weights.scalar_type())
                                   .mul(c.gradient_scale)
                                   .add_(tensors.weights, c.weight_decay)
                                   .mul_(c.trust);
  if (tensors.state.empty()) {
    tensors.weights.add_(gradients, -c.lr);
  } else {
    const at::Tensor& buffer = tensors.state[0];
    buffer.mul_(c.momentum).add_(gradients);
    tensors.weights.add_(gradients.mul_(c.from_gradient).add_(buffer, c.from_buffer), -c.lr);
  }
  cast_parameters(tensors);
}

template <class T>
void update_on_host(const UpdateTensors& tensors, const MomentumCoefficients<T>& c) {
  T* const weights = tensors.weights.data_ptr<T>();
  T* const buffer = tensors.state.empty() ? nullptr : tensors.state[0].data_ptr<T>();
  update_stretch<T>(tensors, [&](int64_t begin, int64_t count, const T* gradients) {
    if (buffer == nullptr) {
      plain_loop(weights + begin, gradients, count, c);
    } else {
      momentum_loop(weights + begin, buffer + begin, gradients, count, c);
    }
  });
}

}  // namespace

std::vector<std::string> SgdRule::state_names() const {
  return options_.momentum == 0.0 ? std::vector<std::string>() : std::vector<std::string>{"momentum_buffer"};
}

void SgdRule::apply(const UpdateTensors& tensors, const StepScalars& step, double weight_decay, double trust) const {
  check_stretch(tensors, options_.momentum == 0.0 ? 0 : 1);
  if (!on_host_) {
    update_with_aten(tensors, coefficients<double>(options_, step, weight_decay, trust));
    return;
  }
  with_type(tensors, [&](auto zero) {
    update_on_host(tensors, coefficients<decltype(zero)>(options_, step, weight_decay, trust));
  });
}

LarsRule::LarsRule(const OptimizerOptions& options, bool on_host)
    : trust_coefficient_(options.trust_coefficient), momentum_(options, on_host) {}

void LarsRule::prepare(const UpdateTensors& tensors, const StepScalars& step, double /*weight_decay*/,
                       const at::Tensor& sums) const {
  const MemoryScope scope(MemoryClass::kWorkspaces);
  sums.select(0, 0).add_(sum_of_squares_there(tensors.weights));
  sums.select(0, 1).add_(sum_of_squares_there(tensors.gradients), step.gradient_scale * step.gradient_scale);
}

double LarsRule::trust_ratio(double weight_norm, double update_norm, double weight_decay) const {
  const bool is_scaled = weight_norm > 0.0 && update_norm > 0.0;
  return is_scaled ? trust_coefficient_ * weight_norm / (update_norm + weight_decay * weight_norm) : 1.0;
}

void LarsRule::apply(const UpdateTensors& tensors, const StepScalars& step, double weight_decay, double trust) const {
  momentum_.apply(tensors, step, weight_decay, trust);
}

}  // namespace vit_hybrid::zero
