// The field error of tensors, by the kernels of field_error_cuda.cu.
#include "src/kernels/field_error_cuda.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <limits>

#include "src/base/error.h"
#include "src/base/memory_tracker.h"
#include "src/base/text.h"
#include "src/kernels/field_error.h"
#include "src/kernels/half_conversion.h"

namespace vit_hybrid::kernels {

namespace {

template <class T>
FieldArrays<T> arrays_of(const at::Tensor& patches, const at::Tensor& fields, const PatchGrid& grid,
                         const FieldMeasure& measure) {
  using F = ComputeType<T>;
  const int64_t elements = grid.num_patches() * grid.num_features();
  const int64_t channel = grid.height * grid.width;
  VH_ASSERT(patches.is_contiguous() && fields.is_contiguous() && patches.numel() == patches.size(0) * elements &&
                fields.numel() == patches.size(0) * grid.channels * channel &&
                elements <= std::numeric_limits<int32_t>::max() &&
                fields.scalar_type() == c10::CppTypeToScalarType<F>::value,
            str(patches.numel(), " predictions for ", fields.numel(), " values of type ",
                c10::toString(fields.scalar_type())));
  const auto narrow = [](int64_t value) { return static_cast<uint32_t>(value); };
  const PatchPlaces places{narrow(grid.columns()),
                           narrow(grid.patch_height),
                           narrow(grid.patch_width),
                           narrow(grid.channels),
                           narrow(grid.height),
                           narrow(grid.width),
                           channel};
  const auto weights = [](const at::Tensor& given) {
    return given.defined() ? given.const_data_ptr<double>() : nullptr;
  };
  return {patches.const_data_ptr<T>(),
          fields.const_data_ptr<F>(),
          nullptr,
          nullptr,
          elements,
          places,
          measure.power,
          weights(measure.weights.rows),
          weights(measure.weights.channels)};
}

}  // namespace

at::Tensor device_field_sums(const at::Tensor& patches, const at::Tensor& fields, const PatchGrid& grid,
                             const FieldMeasure& measure) {
  const c10::cuda::CUDAGuard guard(patches.device());
  const auto options = patches.options().dtype(at::kDouble);
  at::Tensor sums = at::zeros({2, patches.size(0)}, options);
  const MemoryScope scope(MemoryClass::kWorkspaces);
  const at::Tensor workspace = at::empty({patches.size(0), kFieldParts, 2}, options);
  with_float_type(patches.scalar_type(), [&](auto zero) {
    launch_field_sums(arrays_of<decltype(zero)>(patches, fields, grid, measure), patches.size(0),
                      workspace.mutable_data_ptr<double>(), sums.mutable_data_ptr<double>(),
                      c10::cuda::getCurrentCUDAStream());
  });
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return sums;
}

at::Tensor device_field_gradient(const at::Tensor& patches, const at::Tensor& fields, const PatchGrid& grid,
                                 const at::Tensor& factors, const FieldMeasure& measure) {
  const c10::cuda::CUDAGuard guard(patches.device());
  at::Tensor gradient = at::empty_like(patches);
  with_float_type(patches.scalar_type(), [&](auto zero) {
    using T = decltype(zero);
    FieldArrays<T> arrays = arrays_of<T>(patches, fields, grid, measure);
    arrays.gradient = gradient.mutable_data_ptr<T>();
    arrays.factors = factors.const_data_ptr<double>();
    launch_field_gradient(arrays, patches.size(0), c10::cuda::getCurrentCUDAStream());
  });
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return gradient;
}

}  // namespace vit_hybrid::kernels
