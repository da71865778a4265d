// Kernels of GPUs in a program without CUDA, where no tensor lies on one: all refuse.
#include "src/base/error.h"
#include "src/kernels/attention/attention_dropout.h"
#include "src/kernels/attention/device_attention.h"
#include "src/kernels/dropout.h"
#include "src/kernels/field_error.h"
#include "src/kernels/gemm/device_products.h"
#include "src/kernels/layer_norm.h"

namespace vit_hybrid::kernels {

namespace {

[[noreturn]] void fail() {
  throw Error(ErrorClass::kInternal, "a tensor on a device in a program without CUDA");
}

}  // namespace

Normed device_layer_norm(const at::Tensor&, const at::Tensor&, const at::Tensor&, double) {
  fail();
}

NormedSum device_residual_layer_norm(const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&,
                                     const at::Tensor&, double) {
  fail();
}

at::Tensor device_layer_norm_backward(const at::Tensor&, const NormInput&, const at::Tensor&, const at::Tensor&,
                                      const NormGradients&) {
  fail();
}

at::Tensor device_residual_sum(const at::Tensor&, const at::Tensor&, const at::Tensor&) {
  fail();
}

at::Tensor device_scale_samples(const at::Tensor&, const at::Tensor&) {
  fail();
}

at::Tensor device_path_scales(const KeyedDrop&, const at::TensorOptions&) {
  fail();
}

Dropped device_dropout(const at::Tensor&, const KeyedDrop&, const DrawPlaces&) {
  fail();
}

at::Tensor device_field_squares(const at::Tensor&, const at::Tensor&, const PatchGrid&) {
  fail();
}

at::Tensor device_field_gradient(const at::Tensor&, const at::Tensor&, const PatchGrid&, const at::Tensor&) {
  fail();
}

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

std::string device_product_text(at::ScalarType /*type*/) {
  no_cuda("device_product_text");
}

const DeviceTraits& device_traits(c10::Device device) {
  fail_invariant("a GPU in a program without CUDA", __FILE__, __LINE__, device.str());
}

double device_microseconds(const std::function<void()>& /*work*/, Effort /*effort*/) {
  fail_invariant("a GPU in a program without CUDA", __FILE__, __LINE__, "device_microseconds");
}

void synchronize_device() {
  fail_invariant("a GPU in a program without CUDA", __FILE__, __LINE__, "synchronize_device");
}

void release_unused_device_memory() {
  fail_invariant("a GPU in a program without CUDA", __FILE__, __LINE__, "release_unused_device_memory");
}

at::Tensor device_attention_mask(const AttentionMaskKey& /*key*/, Range /*queries*/, Range /*keys*/,
                                 c10::Device /*device*/) {
  VH_ASSERT(false, "this program was built without CUDA");
}

at::Tensor device_qkv_gradient(const at::Tensor& dq, const at::Tensor& /*dk*/, const at::Tensor& /*dv*/) {
  fail_invariant("a tensor on a GPU in a program without CUDA", __FILE__, __LINE__, dq.device().str());
}

}  // namespace vit_hybrid::kernels
