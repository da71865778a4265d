// Steps of an update rule or of an optimizer whose decision a test makes.
#pragma once

#include <cstdint>

#include "parallel/zero/zero1_optimizer.h"

namespace vit_hybrid::testing {

/// scalars_of_step() of a gradient that is multiplied with `gradient_scale`.
inline zero::StepScalars scalars_of(const zero::OptimizerOptions& options, int64_t number, double lr,
                                    double gradient_scale) {
  zero::StepScalars step = zero::scalars_of_step(options, number, lr);
  step.gradient_scale = gradient_scale;
  return step;
}

/// The next step of `optimizer`, as the engine does it after its decision. Collective as Zero1Optimizer::update().
inline void step(zero::Zero1Optimizer& optimizer, zero::StepControl& control, double lr, double gradient_scale,
                 bool skip = false) {
  zero::StepScalars scalars = optimizer.next_step(lr);
  scalars.gradient_scale = gradient_scale;
  scalars.skip = skip ? 1.0 : 0.0;
  control.set(scalars);
  optimizer.update(control);
  optimizer.end_step(control.read().is_skipped());
}

}  // namespace vit_hybrid::testing
