// BatchNormalizer: batches that came as they are stored, normalized where they are.
#pragma once

#include <ATen/core/Tensor.h>

#include "data/datasets/dataset.h"

namespace vit_hybrid::data {

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
  /// The same into `to`; all on the host.
  void normalize_into(const at::Tensor& values, const at::Tensor& to) const;

 private:
  const StoredScaling* scaling_ = nullptr;
  at::Tensor mean_;
  at::Tensor std_;
};

}  // namespace vit_hybrid::data
