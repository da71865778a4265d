// Residual sums of tensors whose branches may be dropped by sample.
#pragma once

#include <ATen/core/Tensor.h>

namespace vit_hybrid::kernels {

/// residual + scales[n] branch for each sample n, in fp32 (fp64 for fp64) and rounded once, written over `branch`. Both
/// [B, ...], contiguous, of one type; scales [B], fp32 (fp64 for fp64), or undefined: 1.
at::Tensor residual_sum(const at::Tensor& residual, const at::Tensor& branch, const at::Tensor& scales);

/// scales[n] x for each sample n, a new tensor.
at::Tensor scale_samples(const at::Tensor& x, const at::Tensor& scales);

/// The gradient of the branch from that of the sum: the same tensor where nothing is scaled.
at::Tensor branch_gradient(const at::Tensor& dsum, const at::Tensor& scales);

/// The rows of all samples, and the factors of their branches on the host.
template <class F>
class SampleScales {
 public:
  /// `x` [B, ...] of `rows` rows; scales as above.
  SampleScales(const at::Tensor& scales, const at::Tensor& x, int64_t rows)
      : scales_(scales.defined() ? scales.const_data_ptr<F>() : nullptr),
        rows_of_sample_(x.size(0) > 0 ? rows / x.size(0) : 1) {}
  F of_row(int64_t row) const { return scales_ == nullptr ? F(1) : scales_[row / rows_of_sample_]; }

 private:
  const F* scales_;
  int64_t rows_of_sample_;
};

}  // namespace vit_hybrid::kernels
