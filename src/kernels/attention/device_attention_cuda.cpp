// The gradients of q, k and v joined into that of qkv: tensors handed to the kernel.
#include "src/kernels/attention/device_attention_cuda.h"

#include <ATen/ops/empty.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include "src/base/error.h"
#include "src/base/text.h"
#include "src/kernels/attention/device_attention.h"
#include "src/kernels/half_conversion.h"

namespace vit_hybrid::kernels {

at::Tensor device_qkv_gradient(const at::Tensor& dq, const at::Tensor& dk, const at::Tensor& dv) {
  for (const at::Tensor& other : {dk, dv}) {
    VH_ASSERT(other.sizes() == dq.sizes() && other.scalar_type() == dq.scalar_type() && other.device() == dq.device(),
              str("gradients of q, k and v of ", dq.numel(), " and ", other.numel(), " elements"));
  }
  const c10::cuda::CUDAGuard guard(dq.device());
  const at::Tensor q = dq.contiguous(), k = dk.contiguous(), v = dv.contiguous();
  const int64_t columns = dq.size(2) * dq.size(3);
  at::Tensor dqkv = at::empty({dq.size(0), dq.size(1), 3 * columns}, dq.options());
  with_float_type(dq.scalar_type(), [&](auto zero) {
    using T = decltype(zero);
    const QkvGradientPass<T> pass{q.const_data_ptr<T>(),      k.const_data_ptr<T>(),   v.const_data_ptr<T>(),
                                  dqkv.mutable_data_ptr<T>(), dq.size(0) * dq.size(1), columns};
    launch_qkv_gradient(pass, c10::cuda::getCurrentCUDAStream());
  });
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return dqkv;
}

}  // namespace vit_hybrid::kernels
