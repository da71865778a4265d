// StepControl: the StepScalars of the present step in the memory of the parameters' device.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include "parallel/zero/step_scalars.h"

namespace vit_hybrid::zero {

/// Norm and optimizer leave and take the numbers of a step where they compute, so that the host of a GPU starts a whole
/// step without waiting for what it decides, and so that a record of the work takes the numbers of the step that it is
/// replayed in. On the CPU it is plain memory.
class StepControl {
 public:
  explicit StepControl(c10::Device device);
  StepControl(const StepControl&) = delete;
  StepControl& operator=(const StepControl&) = delete;

  /// Begins a step. On a GPU behind what the current stream has been given; after read() of the step before.
  void set(const StepScalars& step);
  /// Squares and not_finite, where GradientNorm leaves them: float64 [2] on the device.
  const at::Tensor& sums() const { return sums_; }
  /// decide() where the numbers are, on the current stream.
  void decide();
  /// The numbers as they stand; waits until the current stream of a GPU has got so far.
  StepScalars read() const;

  /// Where they are: float64 [sizeof(StepScalars) / 8] on the device.
  const at::Tensor& values() const { return values_; }

 private:
  at::Tensor values_;
  at::Tensor sums_;  // a view
  at::Tensor host_;  // page-locked beside a GPU's values, else the values themselves
};

/// The numbers in a StepControl's values, on their device.
StepScalars* scalars_in(const at::Tensor& values);

}  // namespace vit_hybrid::zero
