// Residual sums, drop path, dropout and attention masks of tensors, by the kernels of dropout_cuda.cu.
#include "src/kernels/dropout_cuda.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <algorithm>
#include <limits>

#include "src/base/error.h"
#include "src/base/text.h"
#include "src/kernels/dropout.h"
#include "src/kernels/half_conversion.h"

namespace vit_hybrid::kernels {

namespace {

// to = scales x, or residual + scales x.
void scaled_sum(const at::Tensor& residual, const at::Tensor& x, const at::Tensor& scales, const at::Tensor& to) {
  VH_ASSERT(x.is_contiguous() && (!residual.defined() || (residual.is_contiguous() && residual.numel() == x.numel() &&
                                                          residual.scalar_type() == x.scalar_type())),
            str("a residual sum of ", x.numel(), " elements"));
  const c10::cuda::CUDAGuard guard(x.device());
  with_float_type(x.scalar_type(), [&](auto zero) {
    using T = decltype(zero);
    using F = ComputeType<T>;
    const T* const values = x.const_data_ptr<T>();
    const ScaledSum<T> sum{residual.defined() ? residual.const_data_ptr<T>() : values,
                           residual.defined() ? values : nullptr,
                           scales.defined() ? scales.const_data_ptr<F>() : nullptr, to.mutable_data_ptr<T>(),
                           x.numel() / std::max<int64_t>(x.size(0), 1)};
    launch_scaled_sum(sum, x.size(0), c10::cuda::getCurrentCUDAStream());
  });
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

DrawStream draw_stream(const RandomStream& stream, uint32_t threshold) {
  return {stream.key(), threshold};
}

// Calls `launch(numbers, first)` for as many samples at a time as a kernel takes.
template <class Launch>
void for_samples(const std::vector<int64_t>& samples, const Launch& launch) {
  for (size_t first = 0; first < samples.size(); first += SampleNumbers::kMost) {
    SampleNumbers numbers{};
    numbers.count = static_cast<int>(std::min<size_t>(samples.size() - first, SampleNumbers::kMost));
    std::copy_n(samples.begin() + static_cast<int64_t>(first), numbers.count, numbers.numbers);
    launch(numbers, static_cast<int64_t>(first));
    C10_CUDA_KERNEL_LAUNCH_CHECK();
  }
}

}  // namespace

at::Tensor device_residual_sum(const at::Tensor& residual, const at::Tensor& branch, const at::Tensor& scales) {
  scaled_sum(residual, branch, scales, branch);
  return branch;
}

at::Tensor device_scale_samples(const at::Tensor& x, const at::Tensor& scales) {
  at::Tensor to = at::empty_like(x);
  scaled_sum({}, x, scales, to);
  return to;
}

at::Tensor device_path_scales(const KeyedDrop& drop, const at::TensorOptions& options) {
  const at::Tensor scales = at::empty({static_cast<int64_t>(drop.samples.size())}, options);
  const c10::cuda::CUDAGuard guard(scales.device());
  const DrawStream draws = draw_stream(drop.stream, drop.threshold);
  for_samples(drop.samples, [&](const SampleNumbers& numbers, int64_t first) {
    CUstream_st* const stream = c10::cuda::getCurrentCUDAStream();
    if (scales.scalar_type() == at::kDouble) {
      launch_path_scales(draws, numbers, drop.keep_scale, scales.mutable_data_ptr<double>() + first, stream);
    } else {
      launch_path_scales(draws, numbers, drop.keep_scale, scales.mutable_data_ptr<float>() + first, stream);
    }
  });
  return scales;
}

Dropped device_dropout(const at::Tensor& x, const KeyedDrop& drop, const DrawPlaces& places) {
  const c10::cuda::CUDAGuard guard(x.device());
  const int64_t elements = x.size(1) * x.size(2);
  VH_ASSERT(x.is_contiguous() && x.size(0) == static_cast<int64_t>(drop.samples.size()) &&
                elements <= std::numeric_limits<uint32_t>::max(),
            str(x.size(0), " rows of ", elements, " elements for ", drop.samples.size(), " sample numbers"));
  Dropped out{at::empty_like(x), {}};
  with_float_type(x.scalar_type(), [&](auto zero) {
    using T = decltype(zero);
    for_samples(drop.samples, [&](const SampleNumbers& numbers, int64_t first) {
      const DropoutPass<T> pass{x.const_data_ptr<T>() + first * elements,
                                out.y.mutable_data_ptr<T>() + first * elements,
                                static_cast<uint32_t>(x.size(1)),
                                static_cast<uint32_t>(x.size(2)),
                                places.features.begin,
                                places.num_features,
                                static_cast<ComputeType<T>>(drop.keep_scale),
                                draw_stream(drop.stream, drop.threshold)};
      launch_dropout(pass, numbers, c10::cuda::getCurrentCUDAStream());
    });
  });
  return out;
}

at::Tensor device_attention_mask(const AttentionMaskKey& key, Range queries, Range keys, c10::Device device) {
  const auto samples = static_cast<int64_t>(key.samples.size());
  at::Tensor keep =
      at::empty({samples, key.num_heads, queries.size(), keys.size()}, at::TensorOptions(at::kByte).device(device));
  const c10::cuda::CUDAGuard guard(keep.device());
  for_samples(key.samples, [&](const SampleNumbers& numbers, int64_t first) {
    const AttentionMask mask{draw_stream(key.stream, key.threshold),
                             key.first_head,
                             key.num_heads,
                             key.num_tokens,
                             queries.begin,
                             queries.size(),
                             keys.begin,
                             keys.size(),
                             keep.mutable_data_ptr<uint8_t>() + first * key.num_heads * queries.size() * keys.size()};
    launch_attention_mask(mask, numbers, c10::cuda::getCurrentCUDAStream());
  });
  return keep;
}

}  // namespace vit_hybrid::kernels
