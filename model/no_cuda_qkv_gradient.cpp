// Gradients of qkv on a GPU in a program without CUDA, which has none.
#include "model/device_qkv_gradient.h"
#include "src/base/error.h"

namespace vit_hybrid::model {

at::Tensor device_qkv_gradient(const at::Tensor& dq, const at::Tensor& /*dk*/, const at::Tensor& /*dv*/) {
  fail_invariant("a tensor on a GPU in a program without CUDA", __FILE__, __LINE__, dq.device().str());
}

}  // namespace vit_hybrid::model
