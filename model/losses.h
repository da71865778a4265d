// Predictions and losses of the two tasks, and their per-sample figures, each a sum over samples so that parts can be
// added.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "model/vit_options.h"
#include "src/kernels/field_error.h"

namespace vit_hybrid::model {

using kernels::FieldWeights;

/// The prediction from the output of the last unit: fields [B, C, H, W] of a forecast, else the logits as they are.
at::Tensor fields_of(const at::Tensor& output, const VitOptions& options);

/// Sum over the samples of their losses (FieldLoss), over `global_batch`. Scalar with own backward; float64 for fp64
/// input, else float32. patches [B, P, ph pw C] of `grid` as the forecast head gives them; target [B, C, H, W].
/// Differences are fp32 (fp64), sums double; the gradient is rounded once, after the product with that of the loss,
/// which may hold a loss scale. Squares and absolute values count `weights` times, in a norm of the truth too; means
/// are over the number of values, not of weights. (docs/workload.md, "Loss and metrics".)
at::Tensor field_loss(FieldLoss loss, const at::Tensor& patches, const at::Tensor& target,
                      const kernels::PatchGrid& grid, int64_t global_batch, const FieldWeights& weights = {});
/// The same of a prediction [B, C, H, W] like the target.
at::Tensor field_loss(FieldLoss loss, const at::Tensor& prediction, const at::Tensor& target, int64_t global_batch,
                      const FieldWeights& weights = {});

/// Sum over the samples of the cross-entropy with label smoothing e (C. Szegedy et al., CVPR 2016, section 7), over
/// `global_batch`. logits [B, K]; labels int64 [B], or probabilities [B, K] (mixed classes).
at::Tensor cross_entropy_loss(const at::Tensor& logits, const at::Tensor& labels, double label_smoothing,
                              int64_t global_batch);

/// Number of samples whose label is among the k largest logits; ties count as the lower class first.
int64_t num_correct(const at::Tensor& logits, const at::Tensor& labels, int64_t k);

}  // namespace vit_hybrid::model
