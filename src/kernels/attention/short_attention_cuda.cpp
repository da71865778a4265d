// Attention of few tokens: tensors handed to the kernels.
#include "src/kernels/attention/short_attention_cuda.h"

#include <ATen/Dispatch.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <cmath>

#include "src/base/error.h"
#include "src/base/text.h"
#include "src/kernels/attention/device_attention.h"

namespace vit_hybrid::kernels {

namespace {

// Of qkv [B, N, 3 h d], which the kernels take.
ShortAttentionShape shape_of(const at::Tensor& qkv, int64_t num_heads) {
  const int64_t head_dim = qkv.size(2) / (3 * num_heads);
  VH_ASSERT(at::isReducedFloatingType(qkv.scalar_type()) && qkv.is_contiguous() && has_short_attention(head_dim),
            str("qkv of ", qkv.size(2), " features for ", num_heads, " heads in ", c10::toString(qkv.scalar_type())));
  return {qkv.size(0), static_cast<int>(qkv.size(1)), static_cast<int>(num_heads), static_cast<int>(head_dim),
          static_cast<float>(1.0 / std::sqrt(static_cast<double>(head_dim)))};
}

}  // namespace

AttentionPass device_short_attention(const at::Tensor& qkv, int64_t num_heads, Passes passes) {
  const ShortAttentionShape shape = shape_of(qkv, num_heads);
  const c10::cuda::CUDAGuard guard(qkv.device());
  at::Tensor out = at::empty({qkv.size(0), qkv.size(1), qkv.size(2) / 3}, qkv.options());
  at::Tensor logsumexp;
  if (passes == Passes::kBoth) {
    logsumexp = at::empty({qkv.size(0), num_heads, qkv.size(1)}, qkv.options().dtype(at::kFloat));
  }
  auto* const exponents = logsumexp.defined() ? logsumexp.mutable_data_ptr<float>() : nullptr;
  AT_DISPATCH_REDUCED_FLOATING_TYPES(qkv.scalar_type(), "short_attention", [&] {
    launch_short_attention(ShortAttentionForward<scalar_t>{qkv.const_data_ptr<scalar_t>(),
                                                           out.mutable_data_ptr<scalar_t>(), exponents, shape},
                           c10::cuda::getCurrentCUDAStream());
  });
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return {heads_of(out, num_heads), logsumexp, {}, {}};
}

at::Tensor device_short_attention_backward(const at::Tensor& dout, const at::Tensor& qkv, int64_t num_heads,
                                           const AttentionPass& pass) {
  const ShortAttentionShape shape = shape_of(qkv, num_heads);
  const c10::cuda::CUDAGuard guard(qkv.device());
  at::Tensor dqkv = at::empty_like(qkv);
  AT_DISPATCH_REDUCED_FLOATING_TYPES(qkv.scalar_type(), "short_attention", [&] {
    launch_short_attention(
        ShortAttentionBackward<scalar_t>{qkv.const_data_ptr<scalar_t>(), pass.out_BhNd.const_data_ptr<scalar_t>(),
                                         dout.const_data_ptr<scalar_t>(), pass.logsumexp.const_data_ptr<float>(),
                                         dqkv.mutable_data_ptr<scalar_t>(), shape},
        c10::cuda::getCurrentCUDAStream());
  });
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return dqkv;
}

}  // namespace vit_hybrid::kernels
