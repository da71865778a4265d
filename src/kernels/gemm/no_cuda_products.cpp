// A program without CUDA has no tensors on GPUs, so nothing of this can be reached.
#include "src/base/error.h"
#include "src/kernels/gemm/device_products.h"

namespace vit_hybrid::kernels {

namespace {

[[noreturn]] void no_cuda(const char* function) {
  fail_invariant("a tensor on a GPU in a program without CUDA", __FILE__, __LINE__, function);
}

}  // namespace

at::Tensor device_linear_forward(const at::Tensor& /*x*/, const at::Tensor& /*weight*/, const at::Tensor& /*bias*/) {
  no_cuda("device_linear_forward");
}

at::Tensor device_linear_backward_input(const at::Tensor& /*dy*/, const at::Tensor& /*weight*/) {
  no_cuda("device_linear_backward_input");
}

void device_add_weight_gradient(const at::Tensor& /*gradient*/, const at::Tensor& /*dy*/, const at::Tensor& /*x*/,
                                const at::Tensor& /*bias_gradient*/) {
  no_cuda("device_add_weight_gradient");
}

void device_add_column_sums(const at::Tensor& /*gradient*/, const at::Tensor& /*dy*/) {
  no_cuda("device_add_column_sums");
}

at::Tensor device_gelu(const at::Tensor& /*z*/) {
  no_cuda("device_gelu");
}

at::Tensor device_gelu_backward(const at::Tensor& /*dy*/, const at::Tensor& /*z*/,
                                const at::Tensor& /*bias_gradient*/) {
  no_cuda("device_gelu_backward");
}

void measure_product(const ProductProblem& /*problem*/, c10::Device /*device*/) {
  no_cuda("measure_product");
}

void wake_device(c10::Device /*device*/) {
  no_cuda("wake_device");
}

void forget_product_plans() {}

std::vector<std::string> unmeasured_products() {
  return {};
}

std::string device_product_text(at::ScalarType /*type*/) {
  no_cuda("device_product_text");
}

}  // namespace vit_hybrid::kernels
