// GELU and sums of columns of tensors on a GPU: gelu.h and gemm/epilogue.h by the kernels of gelu_cuda.cu.
#include "src/kernels/gelu_cuda.h"

#include <ATen/cuda/CUDAContext.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>

#include <type_traits>

#include "src/base/error.h"
#include "src/base/memory_tracker.h"
#include "src/kernels/gelu.h"
#include "src/kernels/gemm/epilogue.h"
#include "src/kernels/half_conversion.h"

namespace vit_hybrid::kernels {

namespace {

// Room for the sums over each part of the rows of a matrix.
at::Tensor make_parts(const at::Tensor& rows) {
  const MemoryScope scope(MemoryClass::kWorkspaces);
  const auto type = rows.scalar_type();
  const int64_t parts = num_column_sum_parts(rows.size(0), rows.size(1), rows.element_size(),
                                             at::cuda::getDeviceProperties(rows.device().index())->multiProcessorCount);
  return at::empty({parts, rows.size(1)}, rows.options().dtype(type == at::kDouble ? at::kDouble : at::kFloat));
}

template <class Sum>
void add_parts(const at::Tensor& gradient, const at::Tensor& partial) {
  with_float_type(gradient.scalar_type(), [&](auto element) {
    using Gradient = decltype(element);
    if constexpr (std::is_same_v<Sum, double> == std::is_same_v<Gradient, double>) {
      launch_add_parts(partial.const_data_ptr<Sum>(), gradient.mutable_data_ptr<Gradient>(), partial.size(1),
                       partial.size(0), at::cuda::getCurrentCUDAStream());
    } else {
      fail_invariant("gradients of a type as wide as the sums'", __FILE__, __LINE__,
                     c10::toString(gradient.scalar_type()));
    }
  });
  C10_CUDA_CHECK(cudaGetLastError());
}

}  // namespace

void device_add_column_sums(const at::Tensor& gradient, const at::Tensor& dy) {
  if (dy.numel() == 0) {
    return;
  }
  const c10::cuda::CUDAGuard guard(dy.device());
  const at::Tensor rows = dy.contiguous();
  const at::Tensor partial = make_parts(rows);
  with_float_type(dy.scalar_type(), [&](auto element) {
    using T = decltype(element);
    launch_column_sums(rows.const_data_ptr<T>(), partial.mutable_data_ptr<ComputeType<T>>(), rows.size(0), rows.size(1),
                       partial.size(0), at::cuda::getCurrentCUDAStream());
    add_parts<ComputeType<T>>(gradient, partial);
  });
}

at::Tensor device_gelu(const at::Tensor& z, GeluKind kind) {
  const c10::cuda::CUDAGuard guard(z.device());
  const at::Tensor in = z.contiguous();
  at::Tensor y = at::empty_like(in);
  if (z.numel() == 0) {
    return y;
  }
  with_float_type(z.scalar_type(), [&](auto element) {
    using T = decltype(element);
    launch_gelu(in.const_data_ptr<T>(), y.mutable_data_ptr<T>(), in.numel(), kind, at::cuda::getCurrentCUDAStream());
  });
  C10_CUDA_CHECK(cudaGetLastError());
  return y;
}

at::Tensor device_gelu_backward(const at::Tensor& dy, const at::Tensor& z, GeluKind kind,
                                const at::Tensor& bias_gradient) {
  const c10::cuda::CUDAGuard guard(z.device());
  const at::Tensor dy_rows = dy.contiguous();
  const at::Tensor in = z.contiguous();
  at::Tensor dz = at::empty_like(in);
  if (z.numel() == 0) {
    return dz;
  }
  const at::Tensor partial = make_parts(in);
  with_float_type(z.scalar_type(), [&](auto element) {
    using T = decltype(element);
    auto* const sums = bias_gradient.defined() ? partial.mutable_data_ptr<ComputeType<T>>() : nullptr;
    launch_gelu_backward(dy_rows.const_data_ptr<T>(), in.const_data_ptr<T>(), dz.mutable_data_ptr<T>(), sums,
                         in.size(0), in.size(1), partial.size(0), kind, at::cuda::getCurrentCUDAStream());
    if (bias_gradient.defined()) {
      add_parts<ComputeType<T>>(bias_gradient, partial);
    }
  });
  C10_CUDA_CHECK(cudaGetLastError());
  return dz;
}

}  // namespace vit_hybrid::kernels
