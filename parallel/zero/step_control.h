// PrecisionPolicy: the number types of a run, one value from the option --precision; LossScaler: the loss scale of
// fp16; StepControl: the scalars of a step on its device, and whether the step is taken.
//
// A GPU decides about its step itself: a host that had to read the norm would leave the device without work from the
// end of backward until the update is launched. What is decided has the host's bits: one function in double
// (rules/step_arithmetic.h), without sums of products that a compiler could fuse; bias corrections come from the host.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <string>

#include "parallel/zero/optimizer_options.h"
#include "parallel/zero/rules/step_arithmetic.h"

namespace vit_hybrid::zero {

/// Parameters and activations are of type `compute`, gradients are added up in `gradient`, reduced over ranks in
/// `reduce`, and the optimizer updates weights and moments of type `master`. Where master equals compute, the master
/// weights are the parameters themselves; else the parameters are cast from them (P. Micikevicius et al., "Mixed
/// precision training", ICLR 2018, section 3.1).
struct PrecisionPolicy {
  at::ScalarType compute = at::kFloat;
  at::ScalarType gradient = at::kFloat;
  at::ScalarType reduce = at::kFloat;
  at::ScalarType master = at::kFloat;
  bool operator==(const PrecisionPolicy&) const = default;

  bool has_own_master() const { return master != compute; }
};

/// By name: "fp32", "tf32" (the same types), "fp64", "bf16" or "fp16", with gradients added up and reduced in the
/// master type. Another name is Error(kUsage).
PrecisionPolicy make_precision_policy(const std::string& name);

/// Step number `number`, from 1, of an optimizer: its learning rate and bias corrections, made in double; D. P. Kingma
/// and J. Ba, "Adam", ICLR 2015, algorithm 1.
StepScalars scalars_of_step(const OptimizerOptions& options, int64_t number, double lr);

struct LossScaleOptions {
  double initial = 1.0;
  bool is_dynamic = false;
  double growth = 2.0;
  double backoff = 0.5;
  int64_t growth_interval = 2000;  ///< steps without an overflow before it grows
};

/// The options of --precision: fp16 is scaled, by `fixed` or, where that is 0, dynamically from 65536; other types are
/// not.
LossScaleOptions loss_scale_options(bool is_fp16, double fixed);

/// What is saved of it.
struct LossScaleState {
  double scale = 0.0;         ///< 0 where it is not dynamic: there is nothing to go on from
  int64_t good_steps = 0;     ///< since it was changed last
  int64_t skipped_steps = 0;  ///< of the whole training
  bool operator==(const LossScaleState&) const = default;
};

/// Dynamic loss scaling (P. Micikevicius et al., "Mixed precision training", ICLR 2018, section 3.2; the constants are
/// those of torch.amp.GradScaler). It is told once a step what the whole mesh has agreed on, so that it is the same
/// number on all ranks without a message.
class LossScaler {
 public:
  explicit LossScaler(const LossScaleOptions& options) : options_(options), scale_(options.initial) {}

  /// The loss is multiplied with it before backward. A power of two where it is dynamic: nothing is rounded by it.
  double scale() const { return scale_; }
  bool is_dynamic() const { return options_.is_dynamic; }
  /// True where a smaller scale may help against an overflow.
  bool can_back_off() const { return options_.is_dynamic && scale_ > kSmallest; }
  /// After each step: whether all gradients of all ranks were finite.
  void update(bool finite);

  LossScaleState state() const { return {options_.is_dynamic ? scale_ : 0.0, good_steps_, skipped_steps_}; }
  /// Goes on from a saved state; a fixed scale stays what it is.
  void restore(const LossScaleState& state);

  static constexpr double kSmallest = 0x1p-14;  ///< below it gradients, not the scale, overflow
  static constexpr double kLargest = 0x1p24;

 private:
  LossScaleOptions options_;
  double scale_;
  int64_t good_steps_ = 0;
  int64_t skipped_steps_ = 0;
};

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
  /// The loss, to which the pass adds: float64 [] on the device.
  const at::Tensor& loss() const { return loss_; }
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
  at::Tensor loss_;  // a view, as sums_
  at::Tensor sums_;
  at::Tensor host_;  // page-locked beside a GPU's values, else the values themselves
};

/// The numbers in a StepControl's values, on their device.
StepScalars* scalars_in(const at::Tensor& values);

}  // namespace vit_hybrid::zero
