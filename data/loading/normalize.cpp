// Normalization of a batch: by one loop on the host, by kernels on a GPU (normalize_cuda.cpp).
#include "data/loading/normalize.h"

#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>

#include <cstdint>
#include <vector>

#include "data/loading/normalize_cuda.h"
#include "src/base/error.h"
#include "src/base/text.h"

namespace vit_hybrid::data {

namespace {

template <class T>
void normalize_fields(const at::Tensor& batch, const float* mean, const float* std, const at::Tensor& to) {
  const int64_t channels = to.size(1);
  const int64_t plane = to.size(2) * to.size(3);
  at::parallel_for(0, to.size(0) * channels, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const float* const values = batch.const_data_ptr<float>() + i * plane;
      T* const result = to.mutable_data_ptr<T>() + i * plane;
      const float mean_of_channel = mean[i % channels];
      const float std_of_channel = std[i % channels];
#pragma omp simd
      for (int64_t k = 0; k < plane; ++k) {
        result[k] = static_cast<T>(normalized_value(values[k], mean_of_channel, std_of_channel));
      }
    }
  });
}

template <class T>
void normalize_images(const at::Tensor& batch, const float* mean, const float* std, const at::Tensor& to) {
  ByteTable<T> table;
  table.fill(mean, std, 0, 1);
  const int64_t pixels = to.size(2) * to.size(3);
  at::parallel_for(0, to.size(0), 1, [&](int64_t begin, int64_t end) {
    for (int64_t image = begin; image < end; ++image) {
      const uint8_t* const bytes = batch.const_data_ptr<uint8_t>() + image * pixels * kColors;
      T* const planes = to.mutable_data_ptr<T>() + image * pixels * kColors;
      for (int64_t pixel = 0; pixel < pixels; ++pixel) {
        for (int color = 0; color < kColors; ++color) {
          planes[color * pixels + pixel] = table.of(color, bytes[pixel * kColors + color]);
        }
      }
    }
  });
}

// Asserts that the tensors fit, and returns the shape of the result.
std::vector<int64_t> check_batch(const at::Tensor& batch, const at::Tensor& mean, const at::Tensor& std) {
  VH_ASSERT(batch.dim() == 4 && batch.is_contiguous(), str("a batch of ", batch.dim(), " dims"));
  const bool is_bytes = batch.scalar_type() == at::kByte;
  VH_ASSERT(is_bytes ? batch.size(3) == kColors : batch.scalar_type() == at::kFloat,
            str("a batch of type ", c10::toString(batch.scalar_type()), " and ", batch.size(3), " columns"));
  const int64_t channels = is_bytes ? kColors : batch.size(1);
  for (const at::Tensor& statistic : {mean, std}) {
    VH_ASSERT(statistic.scalar_type() == at::kFloat && statistic.is_contiguous() && statistic.numel() == channels &&
                  statistic.device() == batch.device(),
              str(statistic.numel(), " statistics on ", statistic.device().str(), " for ", channels, " channels on ",
                  batch.device().str()));
  }
  return is_bytes ? std::vector<int64_t>{batch.size(0), kColors, batch.size(1), batch.size(2)} : batch.sizes().vec();
}

}  // namespace

at::Tensor normalize_batch(const at::Tensor& batch, const at::Tensor& mean, const at::Tensor& std,
                           at::ScalarType type) {
  at::Tensor to = at::empty(check_batch(batch, mean, std), batch.options().dtype(type));
  normalize_batch_into(batch, mean, std, to);
  return to;
}

void normalize_batch_into(const at::Tensor& batch, const at::Tensor& mean, const at::Tensor& std,
                          const at::Tensor& to) {
  VH_ASSERT(to.is_contiguous() && to.sizes() == at::IntArrayRef(check_batch(batch, mean, std)) &&
                to.device() == batch.device(),
            "the place for normalized values has another shape, or is on another device");
  if (!batch.is_cpu()) {
    return normalize_batch_cuda(batch, mean, std, to);
  }
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, to.scalar_type(), "normalize_batch", [&] {
    const auto* const means = mean.const_data_ptr<float>();
    const auto* const deviations = std.const_data_ptr<float>();
    if (batch.scalar_type() == at::kByte) {
      normalize_images<scalar_t>(batch, means, deviations, to);
    } else {
      normalize_fields<scalar_t>(batch, means, deviations, to);
    }
  });
}

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
