// LayerNorm of tensors on a GPU: layer_norm.h by the kernels of layer_norm_cuda.cu.
// Shapes: R rows of D features, B samples.
#include "src/kernels/layer_norm_cuda.h"

#include <ATen/OpMathType.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>

#include <algorithm>

#include "src/base/error.h"
#include "src/base/memory_tracker.h"
#include "src/base/text.h"
#include "src/kernels/gemm/epilogue.h"
#include "src/kernels/half_conversion.h"
#include "src/kernels/layer_norm.h"

namespace vit_hybrid::kernels {

namespace {

int64_t num_rows(const at::Tensor& x) {
  return x.numel() / std::max<int64_t>(x.size(-1), 1);
}

void check_like(const at::Tensor& tensor, const at::Tensor& x) {
  VH_ASSERT(tensor.is_contiguous() && tensor.scalar_type() == x.scalar_type() && tensor.numel() == x.numel() &&
                tensor.device() == x.device(),
            str(tensor.numel(), " elements of type ", c10::toString(tensor.scalar_type()), " for ", x.numel(),
                " of type ", c10::toString(x.scalar_type())));
}

template <class T>
T* optional_data(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.mutable_data_ptr<T>() : nullptr;
}

// Norms x; or, where `branch` is defined, x + scales branch, which is written over it.
Normed norm(const at::Tensor& x, const at::Tensor& branch, const at::Tensor& scales, const at::Tensor& weight,
            const at::Tensor& bias, double eps) {
  const c10::cuda::CUDAGuard guard(x.device());
  check_like(x, branch.defined() ? branch : x);
  const int64_t rows = num_rows(x);
  const auto options = x.options().dtype(at::toOpMathType(x.scalar_type()));
  Normed out{at::empty_like(x), at::empty({rows}, options), at::empty({rows}, options)};
  with_float_type(x.scalar_type(), [&](auto zero) {
    using T = decltype(zero);
    using F = ComputeType<T>;
    NormForward<T> arrays{};
    arrays.x = x.const_data_ptr<T>();
    arrays.branch = optional_data<T>(branch);
    arrays.scales = optional_data<F>(scales);
    arrays.weight = weight.const_data_ptr<T>();
    arrays.bias = bias.const_data_ptr<T>();
    arrays.y = out.y.mutable_data_ptr<T>();
    arrays.mean = out.mean.mutable_data_ptr<F>();
    arrays.rstd = out.rstd.mutable_data_ptr<F>();
    arrays.rows = rows;
    arrays.rows_of_sample = std::max<int64_t>(rows / std::max<int64_t>(x.size(0), 1), 1);
    arrays.features = weight.numel();
    arrays.eps = static_cast<F>(eps);
    launch_norm(arrays, c10::cuda::getCurrentCUDAStream());
  });
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return out;
}

int num_multiprocessors(c10::Device device) {
  int count = 0;
  C10_CUDA_CHECK(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device.index()));
  return count;
}

template <class F>
void add_parts(const NormParts& parts, const F* partial, const NormGradients& gradients, CUstream_st* stream) {
  VH_ASSERT(gradients.weight.scalar_type() == gradients.bias.scalar_type(), "gradients have one type");
  with_float_type(gradients.weight.scalar_type(), [&](auto zero) {
    using G = decltype(zero);
    if constexpr (std::is_same_v<F, float> ? !std::is_same_v<G, double> : std::is_same_v<G, double>) {
      launch_add_norm_parts(parts, partial, gradients.weight.mutable_data_ptr<G>(),
                            gradients.bias.mutable_data_ptr<G>(), optional_data<G>(gradients.added_bias), stream);
    } else {
      VH_ASSERT(false, str("gradients of type ", c10::toString(gradients.weight.scalar_type())));
    }
  });
}

}  // namespace

Normed device_layer_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, double eps) {
  return norm(x, {}, {}, weight, bias, eps);
}

NormedSum device_residual_layer_norm(const at::Tensor& residual, const at::Tensor& branch, const at::Tensor& scales,
                                     const at::Tensor& weight, const at::Tensor& bias, double eps) {
  return {branch, norm(residual, branch, scales, weight, bias, eps)};
}

at::Tensor device_layer_norm_backward(const at::Tensor& dy, const NormInput& input, const at::Tensor& weight,
                                      const at::Tensor& residual_gradient, const NormGradients& gradients) {
  const c10::cuda::CUDAGuard guard(dy.device());
  CUstream_st* const stream = c10::cuda::getCurrentCUDAStream();
  check_like(input.x, dy);
  check_like(residual_gradient.defined() ? residual_gradient : dy, dy);
  at::Tensor dx = at::empty_like(dy);
  with_float_type(dy.scalar_type(), [&](auto zero) {
    using T = decltype(zero);
    using F = ComputeType<T>;
    NormBackward<T> arrays{};
    arrays.dy = dy.const_data_ptr<T>();
    arrays.x = input.x.const_data_ptr<T>();
    arrays.mean = input.mean.const_data_ptr<F>();
    arrays.rstd = input.rstd.const_data_ptr<F>();
    arrays.weight = weight.const_data_ptr<T>();
    arrays.residual_gradient = optional_data<T>(residual_gradient);
    arrays.dx = dx.mutable_data_ptr<T>();
    arrays.rows = num_rows(dy);
    arrays.features = weight.numel();
    const bool has_added_bias = gradients.added_bias.defined();
    const NormParts parts = norm_parts(arrays, num_multiprocessors(dy.device()), has_added_bias);
    const MemoryScope scope(MemoryClass::kWorkspaces);
    const at::Tensor partial = at::empty({parts.num_elements()}, input.mean.options());
    launch_norm_backward(arrays, parts, partial.mutable_data_ptr<F>(), stream);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    add_parts(parts, partial.const_data_ptr<F>(), gradients, stream);
    if (has_added_bias && parts.sums < 3) {
      device_add_column_sums(gradients.added_bias, dx.view({arrays.rows, arrays.features}));
    }
  });
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return dx;
}

}  // namespace vit_hybrid::kernels
