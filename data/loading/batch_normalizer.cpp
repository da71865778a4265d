// The statistics as tensors.
#include "data/loading/batch_normalizer.h"

#include <ATen/ops/tensor.h>

#include "data/loading/normalize_batch.h"

namespace vit_hybrid::data {

BatchNormalizer::BatchNormalizer(const StoredScaling& scaling, c10::Device device)
    : scaling_(&scaling),
      mean_(at::tensor(scaling.mean, at::kFloat).to(device)),
      std_(at::tensor(scaling.std, at::kFloat).to(device)) {}

at::Tensor BatchNormalizer::normalized(const at::Tensor& values, at::ScalarType type) const {
  return normalize_batch(values.contiguous(), mean_, std_, type);
}

void BatchNormalizer::normalize_into(const at::Tensor& values, const at::Tensor& to) const {
  normalize_batch_into(values, mean_, std_, to);
}

}  // namespace vit_hybrid::data
