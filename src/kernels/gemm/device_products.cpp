// Options and kernel table of the process for products on GPUs, and the name of the machine that choices hold for.
#include "src/kernels/gemm/device_products.h"

#include <ATen/Context.h>

#include <cstdlib>

#include "src/base/text.h"
#include "src/base/version.h"
#include "src/kernels/gemm/product_problem.h"

namespace vit_hybrid::kernels {

namespace {

DeviceKernelOptions& options_of_process() {
  static DeviceKernelOptions options;
  return options;
}

}  // namespace

void set_device_kernel_options(const DeviceKernelOptions& options) {
  options_of_process() = options;
  // Its own defaults allow TF32 in cuDNN and half-precision sums in cuBLAS; TORCH_ALLOW_TF32_CUBLAS_OVERRIDE allows
  // TF32 in cuBLAS too.
  at::Context& libtorch = at::globalContext();
  libtorch.setAllowTF32CuBLAS(options.fp32 == Fp32Products::kTf32);
  libtorch.setAllowTF32CuDNN(options.fp32 == Fp32Products::kTf32);
  libtorch.setAllowFP16ReductionCuBLAS(false);
  libtorch.setAllowBF16ReductionCuBLAS(false);
  if (options.order == SumOrder::kFixed) {
    // cuBLAS promises equal bits only where its workspaces are fixed; 8 of 4 MiB is what its manual names.
    setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", 0);
  }
}

const DeviceKernelOptions& device_kernel_options() {
  return options_of_process();
}

KernelTime device_time(const std::function<void()>& work) {
  return time_or_refusal([&] { return device_microseconds(work); }, &synchronize_device);
}

KernelTable& kernel_table() {
  static KernelTable table;
  return table;
}

// The workspace is part of it because algorithms are offered that fit into it.
std::string machine_text(const DeviceTraits& traits, SumOrder order) {
  std::string libtorch;
  for (const auto& [name, version] : library_versions()) {
    libtorch = name == "LibTorch" ? version : libtorch;
  }
  return str(traits.name, " (sm_", traits.capability, ", ", traits.multiprocessors, " multiprocessors), cuBLASLt ",
             traits.cublaslt_version, ", cuDNN ", traits.cudnn_version, ", LibTorch ", libtorch, ", sums in ",
             order == SumOrder::kFixed ? "a fixed" : "any", " order, products in ",
             product_workspace_bytes(traits.capability) >> 20, " MiB");
}

}  // namespace vit_hybrid::kernels
