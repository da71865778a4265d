// Kernels of GPUs in a program without CUDA, where no tensor lies on one: all refuse.
#include "src/base/error.h"
#include "src/kernels/attention/attention_dropout.h"
#include "src/kernels/attention/device_attention.h"
#include "src/kernels/dropout.h"
#include "src/kernels/field_error.h"
#include "src/kernels/gelu.h"
#include "src/kernels/gemm/device_products.h"
#include "src/kernels/gemm/epilogue.h"
#include "src/kernels/layer_norm.h"

namespace vit_hybrid::kernels {

namespace {

[[noreturn]] void no_cuda(const char* function) {
  fail_invariant("a tensor on a GPU in a program without CUDA", __FILE__, __LINE__, function);
}

}  // namespace

Normed device_layer_norm(const at::Tensor&, const at::Tensor&, const at::Tensor&, double) {
  no_cuda(__func__);
}

NormedSum device_residual_layer_norm(const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&,
                                     const at::Tensor&, double) {
  no_cuda(__func__);
}

at::Tensor device_layer_norm_backward(const at::Tensor&, const NormInput&, const at::Tensor&, const at::Tensor&,
                                      const NormGradients&) {
  no_cuda(__func__);
}

at::Tensor device_residual_sum(const at::Tensor&, const at::Tensor&, const at::Tensor&) {
  no_cuda(__func__);
}

at::Tensor device_scale_samples(const at::Tensor&, const at::Tensor&) {
  no_cuda(__func__);
}

at::Tensor device_path_scales(const KeyedDrop&, const at::TensorOptions&) {
  no_cuda(__func__);
}

Dropped device_dropout(const at::Tensor&, const KeyedDrop&, const DrawPlaces&) {
  no_cuda(__func__);
}

at::Tensor device_field_sums(const at::Tensor&, const at::Tensor&, const PatchGrid&, const FieldMeasure&) {
  no_cuda(__func__);
}

at::Tensor device_field_gradient(const at::Tensor&, const at::Tensor&, const PatchGrid&, const at::Tensor&,
                                 const FieldMeasure&) {
  no_cuda(__func__);
}

at::Tensor device_linear_forward(const at::Tensor&, const at::Tensor&, const at::Tensor&) {
  no_cuda(__func__);
}

at::Tensor device_linear_backward_input(const at::Tensor&, const at::Tensor&) {
  no_cuda(__func__);
}

void device_add_weight_gradient(const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&) {
  no_cuda(__func__);
}

void device_add_column_sums(const at::Tensor&, const at::Tensor&) {
  no_cuda(__func__);
}

at::Tensor device_linear_gelu_forward(const at::Tensor&, const at::Tensor&, const at::Tensor&, GeluKind, at::Tensor*) {
  no_cuda(__func__);
}

at::Tensor device_linear_pre_activation(const at::Tensor&, const at::Tensor&, const at::Tensor&, GeluKind) {
  no_cuda(__func__);
}

at::Tensor device_linear_gelu_backward_input(const at::Tensor&, const at::Tensor&, GeluKind, const at::Tensor&) {
  no_cuda(__func__);
}

bool device_fuses_gelu_backward(const at::Tensor&, int64_t, GeluKind) {
  no_cuda(__func__);
}

at::Tensor device_gelu(const at::Tensor&, GeluKind) {
  no_cuda(__func__);
}

at::Tensor device_gelu_backward(const at::Tensor&, const at::Tensor&, GeluKind, const at::Tensor&) {
  no_cuda(__func__);
}

void measure_product(const ProductProblem&, c10::Device) {
  no_cuda(__func__);
}

void forget_product_plans() {}

std::string device_product_text(at::ScalarType, GeluKind) {
  no_cuda(__func__);
}

DeviceTraits device_traits(c10::Device) {
  no_cuda(__func__);
}

double device_microseconds(const std::function<void()>&, Effort) {
  no_cuda(__func__);
}

void synchronize_device() {
  no_cuda(__func__);
}

void release_unused_device_memory() {
  no_cuda(__func__);
}

at::Tensor device_attention_mask(const AttentionMaskKey&, Range, Range, c10::Device) {
  no_cuda(__func__);
}

AttentionPass device_short_attention(const at::Tensor&, int64_t, Passes) {
  no_cuda(__func__);
}

at::Tensor device_short_attention_backward(const at::Tensor&, const at::Tensor&, int64_t, const AttentionPass&) {
  no_cuda(__func__);
}

at::Tensor device_qkv_gradient(const at::Tensor&, const at::Tensor&, const at::Tensor&) {
  no_cuda(__func__);
}

}  // namespace vit_hybrid::kernels
