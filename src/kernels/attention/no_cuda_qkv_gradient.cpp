// Gradients of qkv on a GPU in a program without CUDA, which has none.
#include "src/base/error.h"
#include "src/kernels/attention/device_qkv_gradient.h"

namespace vit_hybrid::kernels {

at::Tensor device_qkv_gradient(const at::Tensor& dq, const at::Tensor& /*dk*/, const at::Tensor& /*dv*/) {
  fail_invariant("a tensor on a GPU in a program without CUDA", __FILE__, __LINE__, dq.device().str());
}

}  // namespace vit_hybrid::kernels
