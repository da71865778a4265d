// Growth and back-off of the loss scale.
#include "parallel/zero/loss_scaler.h"

#include <algorithm>

namespace vit_hybrid::zero {

LossScaleOptions loss_scale_options(bool is_fp16, double fixed) {
  LossScaleOptions options;
  options.is_dynamic = is_fp16 && fixed == 0.0;
  options.initial = !is_fp16 ? 1.0 : options.is_dynamic ? 65536.0 : fixed;
  return options;
}

void LossScaler::update(bool finite) {
  if (!finite) {
    ++skipped_steps_;
    good_steps_ = 0;
    if (options_.is_dynamic) {
      scale_ = std::max(scale_ * options_.backoff, kSmallest);
    }
    return;
  }
  if (!options_.is_dynamic) {
    return;
  }
  ++good_steps_;
  if (good_steps_ >= options_.growth_interval) {
    scale_ = std::min(scale_ * options_.growth, kLargest);
    good_steps_ = 0;
  }
}

void LossScaler::restore(const LossScaleState& state) {
  skipped_steps_ = state.skipped_steps;
  if (options_.is_dynamic && state.scale > 0.0) {
    scale_ = state.scale;
    good_steps_ = state.good_steps;
  }
}

}  // namespace vit_hybrid::zero
