// The choice of a kernel, and the products by ATen.
#include "parallel/tensor/matmul.h"

#include <ATen/ops/addmm.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/sum.h>

#include "parallel/tensor/blocked_products.h"
#include "parallel/tensor/small_product.h"
#include "src/base/memory_tracker.h"

namespace vit_hybrid::tensor {

namespace {

// Smaller products are over before the blocks pay.
constexpr int64_t kSmallestBlockedProduct = int64_t{1} << 20;

bool is_amd_processor() {
#if defined(__x86_64__)
  return __builtin_cpu_is("amd") != 0;
#else
  return false;
#endif
}

bool blocked_products_pay() {
  static const bool pay = is_amd_processor() && has_block_kernel();
  return pay;
}

}  // namespace

ProductKernel choose_product_kernel(const at::Tensor& rows, int64_t num_outputs) {
  const bool fits =
      rows.is_cpu() && rows.scalar_type() == at::kFloat && rows.numel() * num_outputs >= kSmallestBlockedProduct;
  return fits && blocked_products_pay() ? ProductKernel::kBlocked : ProductKernel::kLibrary;
}

const at::Tensor& PackedWeight::panels(int64_t version) {
  if (packed_version_ != version) {
    const MemoryScope scope(MemoryClass::kWorkspaces);
    panels_ = pack_panels(weight_, panels_);
    packed_version_ = version;
  }
  return panels_;
}

at::Tensor linear_forward(const at::Tensor& x, PackedWeight& weight, int64_t version, const at::Tensor& bias) {
  const at::Tensor& matrix = weight.weight();
  if (choose_product_kernel(x, matrix.size(0)) == ProductKernel::kBlocked) {
    return blocked_forward(x.contiguous(), weight.panels(version), matrix.size(0), bias);
  }
  return bias.defined() ? at::addmm(bias, x, matrix.t()) : at::mm(x, matrix.t());
}

at::Tensor linear_backward_input(const at::Tensor& dy, const at::Tensor& weight) {
  if (choose_product_kernel(dy, weight.size(1)) == ProductKernel::kBlocked) {
    return blocked_backward_input(dy.contiguous(), weight);
  }
  return at::mm(dy, weight);
}

void add_weight_gradient(const at::Tensor& gradient, const at::Tensor& dy, const at::Tensor& x) {
  if (dy.size(0) == 0) {
    return;
  }
  if (gradient.scalar_type() != x.scalar_type()) {
    gradient.add_(at::mm(dy.t(), x));
  } else if (choose_product_kernel(dy, x.size(1)) == ProductKernel::kBlocked) {
    blocked_add_weight_gradient(gradient, dy.contiguous(), x.contiguous());
  } else {
    gradient.addmm_(dy.t(), x);
  }
}

void add_bias_gradient(const at::Tensor& gradient, const at::Tensor& dy) {
  gradient.add_(at::sum(dy, {0}, false, gradient.scalar_type()));
}

}  // namespace vit_hybrid::tensor
