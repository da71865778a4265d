// Norms, residual sums, dropout and the error of fields on devices; in programs without CUDA there are none to call.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "src/kernels/dropout.h"
#include "src/kernels/field_error.h"
#include "src/kernels/norm.h"
#include "src/kernels/residual.h"

namespace vit_hybrid::kernels {

// The contracts are those of the functions without "device_", which call these for tensors that are not on the host.
// Nothing here waits for the device.

Normed device_layer_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, double eps);
NormedSum device_residual_layer_norm(const at::Tensor& residual, const at::Tensor& branch, const at::Tensor& scales,
                                     const at::Tensor& weight, const at::Tensor& bias, double eps);
at::Tensor device_layer_norm_backward(const at::Tensor& dy, const NormInput& input, const at::Tensor& weight,
                                      const at::Tensor& residual_gradient, const NormGradients& gradients);

at::Tensor device_residual_sum(const at::Tensor& residual, const at::Tensor& branch, const at::Tensor& scales);
at::Tensor device_scale_samples(const at::Tensor& x, const at::Tensor& scales);

at::Tensor device_path_scales(const KeyedDrop& drop, const at::TensorOptions& options);
/// `keep` comes back undefined: the gradient of x is drawn again, by the same call on dy.
Dropped device_dropout(const at::Tensor& x, const KeyedDrop& drop, const DrawPlaces& places);

at::Tensor device_field_squares(const at::Tensor& patches, const at::Tensor& fields, const PatchGrid& grid);
at::Tensor device_field_gradient(const at::Tensor& patches, const at::Tensor& fields, const PatchGrid& grid,
                                 const at::Tensor& factors);

}  // namespace vit_hybrid::kernels
