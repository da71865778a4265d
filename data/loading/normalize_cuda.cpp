// Normalization of a batch on a GPU: tensors handed to the kernels.
#include "data/loading/normalize_cuda.h"

#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include "data/loading/normalize.h"
#include "src/kernels/half_conversion.h"

namespace vit_hybrid::data {

void normalize_batch_cuda(const at::Tensor& batch, const at::Tensor& mean, const at::Tensor& std,
                          const at::Tensor& to) {
  const c10::cuda::CUDAGuard guard(batch.device());
  const auto* const means = mean.const_data_ptr<float>();
  const auto* const deviations = std.const_data_ptr<float>();
  const int64_t samples = to.size(0), channels = to.size(1), plane = to.size(2) * to.size(3);
  kernels::with_float_type(to.scalar_type(), [&](auto zero) {
    using T = decltype(zero);
    auto* const result = to.mutable_data_ptr<T>();
    const auto stream = c10::cuda::getCurrentCUDAStream();
    if (batch.scalar_type() == at::kByte) {
      const auto* const bytes = batch.const_data_ptr<uint8_t>();
      launch_normalize(ImagePass<T>{bytes, means, deviations, result, samples, plane}, stream);
    } else {
      const auto* const values = batch.const_data_ptr<float>();
      launch_normalize(FieldPass<T>{values, means, deviations, result, samples * channels, plane, channels}, stream);
    }
  });
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

}  // namespace vit_hybrid::data
