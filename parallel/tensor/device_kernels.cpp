// Options and choices of the process.
#include "parallel/tensor/device_kernels.h"

#include <cstdlib>

#include "src/base/text.h"
#include "src/base/version.h"

namespace vit_hybrid::tensor {

namespace {

DeviceKernelOptions& options_of_process() {
  static DeviceKernelOptions options;
  return options;
}

}  // namespace

void set_device_kernel_options(const DeviceKernelOptions& options) {
  options_of_process() = options;
  if (options.order == SumOrder::kFixed) {
    // cuBLAS promises equal bits only where its workspaces are fixed; 8 of 4 MiB is what its manual names.
    setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", 0);
  }
}

const DeviceKernelOptions& device_kernel_options() {
  return options_of_process();
}

KernelTable& kernel_table() {
  static KernelTable table;
  return table;
}

std::string machine_text(const DeviceTraits& traits, SumOrder order) {
  std::string libtorch;
  for (const auto& [name, version] : library_versions()) {
    libtorch = name == "LibTorch" ? version : libtorch;
  }
  return str(traits.name, " (sm_", traits.capability, ", ", traits.multiprocessors, " multiprocessors), cuBLASLt ",
             traits.cublaslt_version, ", cuDNN ", traits.cudnn_version, ", LibTorch ", libtorch, ", sums in ",
             order == SumOrder::kFixed ? "a fixed" : "any", " order");
}

}  // namespace vit_hybrid::tensor
