// The numbers of an optimizer's step where they stand on a device, and Adam's coefficients from them.
#pragma once

#include <cmath>

#include "parallel/zero/adam_kernel.h"
#include "src/base/host_device.h"

namespace vit_hybrid::zero {

/// Places in the array of doubles that holds what a step needs.
enum StepSlot : int {
  kStepNumber,         ///< steps done so far, the present one included once count_adam_step() has run
  kStepLr,             ///< learning rate
  kStepGradientScale,  ///< what gradients are multiplied with: the clip coefficient over the loss scale
  kStepSkip,           ///< not 0: the step changes nothing
  kStepSize,           ///< lr / (1 - beta1^number), by count_adam_step()
  kStepRootScale,      ///< 1 / sqrt(1 - beta2^number), by count_adam_step()
};
inline constexpr int kNumStepSlots = 6;

/// What stays for a run.
struct AdamConstants {
  double beta1;
  double beta2;
  double eps;
  bool decoupled;  ///< decay as AdamW has it
};

/// Counts the step and makes its step size and root scale, unless it is skipped.
VH_HOST_DEVICE inline void count_adam_step(double* step, const AdamConstants& constants) {
  if (step[kStepSkip] != 0.0) {
    return;
  }
  step[kStepNumber] += 1.0;
  step[kStepSize] = step[kStepLr] / (1.0 - std::pow(constants.beta1, step[kStepNumber]));
  step[kStepRootScale] = 1.0 / std::sqrt(1.0 - std::pow(constants.beta2, step[kStepNumber]));
}

/// The numbers of a step: by value, or where `on_device` is not null, what stands there when a kernel runs.
struct StepNumbers {
  double values[kNumStepSlots] = {};
  const double* on_device = nullptr;

  VH_HOST_DEVICE double operator[](int slot) const { return on_device != nullptr ? on_device[slot] : values[slot]; }
};

/// The two coefficients that depend on an element's weight decay.
template <class T>
VH_HOST_DEVICE inline void set_weight_decay(AdamCoefficients<T>& c, const AdamConstants& constants, double lr,
                                            double weight_decay) {
  c.weight_factor = static_cast<T>(constants.decoupled ? 1.0 - lr * weight_decay : 1.0);
  c.gradient_decay = static_cast<T>(constants.decoupled ? 0.0 : weight_decay);
}

/// The coefficients of a counted step.
template <class T>
VH_HOST_DEVICE inline AdamCoefficients<T> adam_coefficients(const StepNumbers& step, const AdamConstants& constants,
                                                            double weight_decay) {
  AdamCoefficients<T> c{};
  c.gradient_scale = static_cast<T>(step[kStepGradientScale]);
  c.beta1 = static_cast<T>(constants.beta1);
  c.one_minus_beta1 = static_cast<T>(1.0 - constants.beta1);
  c.beta2 = static_cast<T>(constants.beta2);
  c.one_minus_beta2 = static_cast<T>(1.0 - constants.beta2);
  c.step_size = static_cast<T>(step[kStepSize]);
  c.root_scale = static_cast<T>(step[kStepRootScale]);
  c.eps = static_cast<T>(constants.eps);
  set_weight_decay(c, constants, step[kStepLr], weight_decay);
  return c;
}

}  // namespace vit_hybrid::zero
