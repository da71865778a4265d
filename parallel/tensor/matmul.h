// The matrix products of linear layers, and the one place that chooses how they are computed.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <utility>

namespace vit_hybrid::tensor {

/// kLibrary: ATen's (MKL or another BLAS on the host, cuBLAS on a GPU). kBlocked: ours around oneDNN's block kernel,
/// fp32 on the host: twice as fast as MKL on AMD processors, where MKL leaves their units half idle.
enum class ProductKernel { kLibrary, kBlocked };

/// The kernel for rows [R, K] (of this type, on this device) times a weight [M, K]. Depends on the shape, the type and
/// the processor, not on the number of threads.
ProductKernel choose_product_kernel(const at::Tensor& rows, int64_t num_outputs);

/// A weight [M, K] beside its copy in the form of the blocked kernel, which is made when first needed.
class PackedWeight {
 public:
  /// `weight` is a contiguous view that lives on.
  explicit PackedWeight(at::Tensor weight) : weight_(std::move(weight)) {}

  const at::Tensor& weight() const { return weight_; }
  /// The packed copy; made again if `version` is not that of the last call.
  const at::Tensor& panels(int64_t version);

 private:
  at::Tensor weight_;
  at::Tensor panels_;
  int64_t packed_version_ = -1;
};

/// x [R, K] times weight [M, K] transposed, plus bias [M] unless it is undefined: [R, M]. `version` is that of the
/// weight's values.
at::Tensor linear_forward(const at::Tensor& x, PackedWeight& weight, int64_t version, const at::Tensor& bias);

/// dy [R, M] times weight [M, K]: the gradient of the input, [R, K].
at::Tensor linear_backward_input(const at::Tensor& dy, const at::Tensor& weight);

/// gradient [M, K] += dy [R, M] transposed times x [R, K]. The gradient may have a wider type.
void add_weight_gradient(const at::Tensor& gradient, const at::Tensor& dy, const at::Tensor& x);

/// gradient [M] += sum over the rows of dy [R, M]. The gradient may have a wider type.
void add_bias_gradient(const at::Tensor& gradient, const at::Tensor& dy);

}  // namespace vit_hybrid::tensor
