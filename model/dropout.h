// Dropout and drop-path whose masks are keyed by global indices, the same in every layout.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "parallel/tensor/step_context.h"
#include "src/base/partition.h"
#include "src/base/random.h"

namespace vit_hybrid::model {

/// Where in a unit something is dropped; with the unit's number it keys the stream of draws.
enum class DropSite : uint64_t {
  kPositions,
  kProjection,
  kHidden,
  kOutput,
  kAttention,
  kAttentionPath,
  kMlpPath,
};

/// What a site draws from: the rate in [0, 1), and (unit, site) as the key beside seed and step.
struct DropKey {
  double rate = 0.0;
  int64_t unit = 0;
  DropSite site = DropSite::kPositions;

  /// The stream of this site in the step of `context`.
  RandomStream stream(Purpose purpose, const tensor::StepContext& context) const;
};

/// A draw of 32 uniform bits is kept if it is at least this: floor(rate 2^32), rate below 1.
uint32_t drop_threshold(double rate);

/// keep[i] = 1 if draw first + i of the sample is kept, else 0, for i in [0, count).
void fill_keep_row(const RandomStream& stream, uint32_t threshold, uint64_t sample, uint64_t first, int64_t count,
                   uint8_t* keep);

/// Drops features of x [B, N, F_r], the features `features` of `num_features` in the global tensor, and divides what is
/// kept by 1 - rate (N. Srivastava et al., JMLR 15, 2014). Element (n, token, f) is kept by draw token * num_features +
/// f of sample n. x itself in evaluation or at rate 0. The graph keeps a byte an element.
at::Tensor dropout(const at::Tensor& x, Range features, int64_t num_features, const DropKey& key,
                   const tensor::StepContext& context);

/// residual + branch, where the branch of a sample is dropped with the key's rate and divided by 1 - rate if kept
/// (stochastic depth: G. Huang et al., ECCV 2016). Both [B, N, D]. `branch` must be a fresh tensor: it is overwritten.
at::Tensor add_residual(const at::Tensor& residual, const at::Tensor& branch, const DropKey& key,
                        const tensor::StepContext& context);

}  // namespace vit_hybrid::model
