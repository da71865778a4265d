// Another choice of kernels for the length of a test.
#pragma once

#include "parallel/tensor/device_kernels.h"
#include "parallel/tensor/device_products.h"

namespace vit_hybrid::testing {

/// Sets the options by which a GPU's kernels are chosen, and forgets what was chosen, until it ends.
class KernelScope {
 public:
  explicit KernelScope(const tensor::DeviceKernelOptions& options) : before_(tensor::device_kernel_options()) {
    start(options);
  }
  ~KernelScope() { start(before_); }
  KernelScope(const KernelScope&) = delete;
  KernelScope& operator=(const KernelScope&) = delete;

 private:
  static void start(const tensor::DeviceKernelOptions& options) {
    tensor::set_device_kernel_options(options);
    tensor::kernel_table() = {};
    tensor::forget_product_plans();
  }

  tensor::DeviceKernelOptions before_;
};

}  // namespace vit_hybrid::testing
