// The matrix products of linear layers, and the one place that chooses how they are computed.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <string>

#include "parallel/tensor/packed_weight.h"

namespace vit_hybrid::tensor {

// Types: fp64, fp32, bf16 and fp16. Sums of products are fp32 (fp64 for fp64), the bias is added to them, and the
// result is rounded once. R, the number of rows, may be 0.

/// How a product on the host is computed. (Those on GPUs: device_products.h.)
enum class ProductKernel {
  kLibrary,    ///< ATen's: MKL or another BLAS
  kBlocked,    ///< ours around oneDNN's block kernel, fp32 and bf16
  kConverted,  ///< half-length types in fp32: operands are converted, the result is rounded
};

/// The kernel for rows [R, K] (of this type) times a weight [M, K]. Depends on the shape, the type and the processor,
/// not on the number of threads.
ProductKernel choose_product_kernel(const at::Tensor& rows, int64_t num_outputs);

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

}  // namespace vit_hybrid::tensor
