// Batches as they are stored, normalized by channel and in the type that the model computes in, on the device they are
// on.
#pragma once

#include <ATen/core/Tensor.h>

#include "data/datasets/dataset.h"

namespace vit_hybrid::data {

/// Fields [B, C, H, W], float32, or images [B, H, W, 3], uint8, as [B, C, H, W] of `type`: (x - mean_c) / std_c,
/// computed in float32 and rounded once; of bytes x / 255 is taken. mean and std: float32 [C] on the batch's device.
/// The bits are the same on every device.
at::Tensor normalize_batch(const at::Tensor& batch, const at::Tensor& mean, const at::Tensor& std, at::ScalarType type);

/// The same into `to`, a contiguous tensor of the result's shape on the batch's device.
void normalize_batch_into(const at::Tensor& batch, const at::Tensor& mean, const at::Tensor& std, const at::Tensor& to);
/// Its part for a batch on a GPU, asynchronous on the current stream; the tensors fit.
void normalize_batch_cuda(const at::Tensor& batch, const at::Tensor& mean, const at::Tensor& std, const at::Tensor& to);

/// Keeps the statistics of one data set on one device.
class BatchNormalizer {
 public:
  /// Empty: for batches that need nothing.
  BatchNormalizer() = default;
  BatchNormalizer(const StoredScaling& scaling, c10::Device device);

  /// True if it is for values with this scaling.
  bool is_for(const StoredScaling* scaling) const { return scaling_ == scaling; }
  /// `values` (float32 fields or bytes of images, on the device) normalized, as `type`: normalize_batch().
  at::Tensor normalized(const at::Tensor& values, at::ScalarType type) const;
  /// The same into `to`: normalize_batch_into().
  void normalize_into(const at::Tensor& values, const at::Tensor& to) const;

 private:
  const StoredScaling* scaling_ = nullptr;
  at::Tensor mean_;
  at::Tensor std_;
};

}  // namespace vit_hybrid::data
