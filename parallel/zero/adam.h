// Adam and AdamW: options, and one update of a stretch of weights.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace vit_hybrid::zero {

enum class AdamKind { kAdam, kAdamW };

/// Hyperparameters that stay for a run (the recipe of WORKLOAD: 0.9, 0.95, 1e-8, no decay).
struct AdamOptions {
  AdamKind kind = AdamKind::kAdam;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;
  double weight_decay = 0.0;
  bool decay_vectors = false;  ///< also decay biases, norms and positions (DecayGroup::kVector)
};

/// What changes from step to step.
struct AdamStep {
  int64_t number = 1;  ///< t of the bias corrections, from 1
  double lr = 0.0;
  double gradient_scale = 1.0;  ///< gradients are multiplied with it
};

/// One stretch of weights: flat tensors of equal length and type on one device.
struct AdamTensors {
  at::Tensor weights;
  at::Tensor gradients;
  at::Tensor exp_avg;
  at::Tensor exp_avg_sq;
};

/// Updates weights and moments in place, as torch.optim.Adam or AdamW (without amsgrad). One pass over memory on the
/// host; ATen operations on another device.
void adam_update(const AdamTensors& tensors, const AdamOptions& options, const AdamStep& step, double weight_decay);

/// The same with ATen operations, on any device.
void adam_update_with_aten(const AdamTensors& tensors, const AdamOptions& options, const AdamStep& step,
                           double weight_decay);

}  // namespace vit_hybrid::zero
