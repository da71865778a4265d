// Batches as they are stored, normalized by channel and in the type that the model computes in, on the device they are
// on.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace vit_hybrid::data {

/// Fields [B, C, H, W], float32, or images [B, H, W, 3], uint8, as [B, C, H, W] of `type`: (x - mean_c) / std_c,
/// computed in float32 and rounded once; of bytes x / 255 is taken. mean and std: float32 [C] on the batch's device.
/// The bits are the same on every device.
at::Tensor normalize_batch(const at::Tensor& batch, const at::Tensor& mean, const at::Tensor& std, at::ScalarType type);

/// The same into `to`, a contiguous host tensor of the result's shape; all tensors on the host.
void normalize_batch_into(const at::Tensor& batch, const at::Tensor& mean, const at::Tensor& std, const at::Tensor& to);

/// normalize_batch() of a batch on a GPU, in one pass; programs without CUDA have none, and refuse.
at::Tensor normalize_batch_cuda(const at::Tensor& batch, const at::Tensor& mean, const at::Tensor& std,
                                at::ScalarType type);

/// Asserts that the tensors fit, and returns the shape of the result.
std::vector<int64_t> check_normalize_batch(const at::Tensor& batch, const at::Tensor& mean, const at::Tensor& std);

}  // namespace vit_hybrid::data
