// Another choice of kernels for the length of a test.
#pragma once

#include "src/kernels/gemm/device_products.h"

namespace vit_hybrid::testing {

/// Sets the options by which a GPU's kernels are chosen, and forgets what was chosen, until it ends.
class KernelScope {
 public:
  explicit KernelScope(const kernels::DeviceKernelOptions& options) : before_(kernels::device_kernel_options()) {
    start(options);
  }
  ~KernelScope() { start(before_); }
  KernelScope(const KernelScope&) = delete;
  KernelScope& operator=(const KernelScope&) = delete;

 private:
  static void start(const kernels::DeviceKernelOptions& options) {
    kernels::set_device_kernel_options(options);
    kernels::kernel_table() = {};
    kernels::forget_product_plans();
  }

  kernels::DeviceKernelOptions before_;
};

}  // namespace vit_hybrid::testing
