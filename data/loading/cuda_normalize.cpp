// Normalization of a batch on a GPU.
#include <ATen/Dispatch.h>
#include <ATen/ops/empty.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include "data/loading/normalize_batch.h"
#include "data/loading/normalize_kernels_cuda.h"

namespace vit_hybrid::data {

at::Tensor normalize_batch_cuda(const at::Tensor& batch, const at::Tensor& mean, const at::Tensor& std,
                                at::ScalarType type) {
  const c10::cuda::CUDAGuard guard(batch.device());
  CUstream_st* const stream = c10::cuda::getCurrentCUDAStream();
  at::Tensor to = at::empty(check_normalize_batch(batch, mean, std), batch.options().dtype(type));
  const auto* const means = mean.const_data_ptr<float>();
  const auto* const deviations = std.const_data_ptr<float>();
  const int64_t plane = to.size(2) * to.size(3);
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, type, "normalize_batch", [&] {
    auto* const target = to.mutable_data_ptr<scalar_t>();
    if (batch.scalar_type() == at::kByte) {
      const ImagePass<scalar_t> pass{batch.const_data_ptr<uint8_t>(), target, means, deviations, plane};
      launch_normalize_images(pass, to.size(0), stream);
    } else {
      const PlanePass<scalar_t> pass{batch.const_data_ptr<float>(), target, means, deviations, to.size(1), plane};
      launch_normalize_planes(pass, to.size(0), stream);
    }
  });
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return to;
}

}  // namespace vit_hybrid::data
