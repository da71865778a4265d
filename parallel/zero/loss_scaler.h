// LossScaler: what fp16 gradients are multiplied by on their way, one number of the whole mesh.
#pragma once

#include <cstdint>

namespace vit_hybrid::zero {

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

  int64_t skipped_steps() const { return skipped_steps_; }
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

}  // namespace vit_hybrid::zero
