// The matrix products (GEMM) of linear layers, and the one place that chooses how they are computed.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <string>

#include "src/kernels/gemm/packing.h"
#include "src/kernels/gemm/product_kernel.h"

namespace vit_hybrid::kernels {

// Types: fp64, fp32, bf16 and fp16. Sums of products are fp32 (fp64 for fp64), the bias is added to them, and the
// result is rounded once. R, the number of rows, may be 0.

/// The kernel for rows [R, K] (of this type) times a weight [M, K]. Depends on the shape, the type, the processor and
/// host_kernel(), not on the number of threads.
ProductKernel choose_product_kernel(const at::Tensor& rows, int64_t num_outputs);

/// Whether products of this type are computed on the host in fp32: fp32 itself, and half-length types for which this
/// processor or LibTorch has no kernel.
bool multiplies_in_fp32(at::ScalarType type);

/// Whether a product in fp32 is so large that host_kernel() computes it; smaller ones are over before blocks pay, and
/// are the library's.
bool is_large_product(int64_t rows, int64_t outputs, int64_t inputs);

/// One line for the start-up report: how linear layers of this type are computed on this device, and why.
std::string product_kernel_text(c10::Device device, at::ScalarType type);

/// x [R, K] times weight [M, K] transposed, plus bias [M] unless it is undefined: [R, M]. `version` is that of the
/// weight's values.
at::Tensor linear_forward(const at::Tensor& x, PackedWeight& weight, int64_t version, const at::Tensor& bias);

/// gelu(z), [R, M], of the unrounded z = linear_forward(x, weight, version, bias) where the product runs on the host;
/// z itself (the same bits) is put into `pre_activation` unless that is null.
at::Tensor linear_gelu_forward(const at::Tensor& x, PackedWeight& weight, int64_t version, const at::Tensor& bias,
                               at::Tensor* pre_activation);

/// dy [R, M] times weight [M, K]: the gradient of the input, [R, K].
at::Tensor linear_backward_input(const at::Tensor& dy, PackedWeight& weight, int64_t version);

/// gradient [M, K] += dy [R, M] transposed times x [R, K], and bias_gradient [M] += the sum over the rows of dy unless
/// it is undefined. Gradients may have a wider type than dy and x.
void add_weight_gradient(const at::Tensor& gradient, const at::Tensor& dy, const at::Tensor& x,
                         const at::Tensor& bias_gradient);

}  // namespace vit_hybrid::kernels
