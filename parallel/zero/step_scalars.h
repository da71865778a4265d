// StepScalars: the numbers of one optimizer step, and what the norm of the gradient decides about it, for host and
// device alike.
#pragma once

#include <cmath>
#include <limits>

#include "src/base/instruction_sets.h"

namespace vit_hybrid::zero {

/// What changes from step to step. Doubles alone, so that they lie in a tensor of any device (StepControl), where
/// kernels, recorded ones too, find those of the present step.
struct StepScalars {
  // What the host knows when the step begins.
  double lr = 0.0;
  double step_size = 0.0;   ///< lr / (1 - beta1^t)
  double mean_scale = 1.0;  ///< 1 / (1 - beta1^t)
  double root_scale = 1.0;  ///< 1 / sqrt(1 - beta2^t)
  double loss_scale = 1.0;  ///< of the gradient
  double max_norm = 0.0;    ///< of the gradient without the loss scale; 0: it is not clipped

  // Of the whole gradient, summed over the world.
  double squares = 0.0;     ///< of what is finite
  double not_finite = 0.0;  ///< how often something is not

  // What decide() makes of them.
  double norm = 0.0;            ///< before clipping, without the loss scale; NaN where it is not finite
  double gradient_scale = 1.0;  ///< gradients are multiplied with it
  double skip = 0.0;            ///< not 0: the gradient is not finite, and nothing may change

  VH_HOST_DEVICE bool is_skipped() const { return skip != 0.0; }
};

/// What gradients are multiplied with: min(1, max_norm / (norm + 1e-6)), as torch's clip_grad_norm_.
VH_HOST_DEVICE inline double clip_coefficient(double norm, double max_norm) {
  const double coefficient = max_norm / (norm + 1e-6);
  return coefficient < 1.0 ? coefficient : 1.0;
}

/// Norm, clipping, loss scale and whether the step is skipped, from what stands before them: one function for the host
/// and for a GPU, with the same bits.
VH_HOST_DEVICE inline void decide(StepScalars& step) {
  const bool finite = step.not_finite == 0.0 && step.squares - step.squares == 0.0;
  step.norm = (finite ? std::sqrt(step.squares) : std::numeric_limits<double>::quiet_NaN()) / step.loss_scale;
  const double clip = step.max_norm > 0.0 ? clip_coefficient(step.norm, step.max_norm) : 1.0;
  step.gradient_scale = clip / step.loss_scale;
  step.skip = finite ? 0.0 : 1.0;
}

}  // namespace vit_hybrid::zero
