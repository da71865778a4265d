// Attention of few tokens: tensors handed to the kernels.
#include "src/kernels/attention/short_attention_cuda.h"

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

template <class Run>
void with_half_type(at::ScalarType type, const Run& run) {
  if (type == at::kBFloat16) {
    run(c10::BFloat16());
  } else {
    run(c10::Half());
  }
}

// Arrays of qkv [B, N, 3 h d]: what both passes say of it.
template <class Arrays>
Arrays sized(Arrays arrays, const at::Tensor& qkv, int64_t num_heads) {
  arrays.samples = qkv.size(0);
  arrays.tokens = static_cast<int>(qkv.size(1));
  arrays.heads = static_cast<int>(num_heads);
  arrays.head_dim = static_cast<int>(qkv.size(2) / (3 * num_heads));
  arrays.scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(arrays.head_dim)));
  return arrays;
}

void check(const at::Tensor& qkv, int64_t num_heads) {
  const bool is_half = qkv.scalar_type() == at::kBFloat16 || qkv.scalar_type() == at::kHalf;
  VH_ASSERT(is_half && qkv.is_contiguous() && has_short_attention(qkv.size(2) / (3 * num_heads)),
            str("qkv of ", qkv.size(2), " features for ", num_heads, " heads in ", c10::toString(qkv.scalar_type())));
}

}  // namespace

AttentionPass device_short_attention(const at::Tensor& qkv, int64_t num_heads, Passes passes) {
  check(qkv, num_heads);
  const c10::cuda::CUDAGuard guard(qkv.device());
  at::Tensor out = at::empty({qkv.size(0), qkv.size(1), qkv.size(2) / 3}, qkv.options());
  at::Tensor logsumexp;
  if (passes == Passes::kBoth) {
    logsumexp = at::empty({qkv.size(0), num_heads, qkv.size(1)}, qkv.options().dtype(at::kFloat));
  }
  with_half_type(qkv.scalar_type(), [&](auto zero) {
    using T = decltype(zero);
    ShortAttentionForward<T> arrays{};
    arrays.qkv = qkv.const_data_ptr<T>();
    arrays.out = out.mutable_data_ptr<T>();
    arrays.logsumexp = logsumexp.defined() ? logsumexp.mutable_data_ptr<float>() : nullptr;
    launch_short_attention(sized(arrays, qkv, num_heads), c10::cuda::getCurrentCUDAStream());
  });
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return {heads_of(out, num_heads), logsumexp, {}, {}};
}

at::Tensor device_short_attention_backward(const at::Tensor& dout, const at::Tensor& qkv, int64_t num_heads,
                                           const AttentionPass& pass) {
  check(qkv, num_heads);
  const c10::cuda::CUDAGuard guard(qkv.device());
  at::Tensor dqkv = at::empty_like(qkv);
  with_half_type(qkv.scalar_type(), [&](auto zero) {
    using T = decltype(zero);
    ShortAttentionBackward<T> arrays{};
    arrays.qkv = qkv.const_data_ptr<T>();
    arrays.out = pass.out_BhNd.const_data_ptr<T>();
    arrays.dout = dout.const_data_ptr<T>();
    arrays.logsumexp = pass.logsumexp.const_data_ptr<float>();
    arrays.dqkv = dqkv.mutable_data_ptr<T>();
    launch_short_attention(sized(arrays, qkv, num_heads), c10::cuda::getCurrentCUDAStream());
  });
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return dqkv;
}

}  // namespace vit_hybrid::kernels
