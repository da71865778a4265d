// Stubs for programs without CUDA, in which no tensor can be on a device.
#include "src/base/error.h"
#include "src/kernels/device_rows.h"

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

}  // namespace vit_hybrid::kernels
