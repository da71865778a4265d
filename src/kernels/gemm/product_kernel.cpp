// Names of kernels, the processor's maker, and the value of the process.
#include "src/kernels/gemm/product_kernel.h"

#include <ATen/Context.h>

#include <array>
#include <utility>

#include "src/base/error.h"
#include "src/base/text.h"
#include "src/kernels/gemm/small_product.h"

namespace vit_hybrid::kernels {

namespace {

constexpr std::array<std::pair<ProductKernel, const char*>, 3> kNames = {{
    {ProductKernel::kLibrary, "library"},
    {ProductKernel::kBlocked, "blocked"},
    {ProductKernel::kConverted, "converted"},
}};

bool is_amd_processor() {
#if defined(__x86_64__)
  return __builtin_cpu_is("amd") != 0;
#else
  return false;
#endif
}

bool is_intel_processor() {
#if defined(__x86_64__)
  return __builtin_cpu_is("intel") != 0;
#else
  return false;
#endif
}

HostKernel& kernel_of_process() {
  static HostKernel kernel = usual_host_kernel();
  return kernel;
}

}  // namespace

std::string kernel_name(ProductKernel kernel) {
  for (const auto& [value, name] : kNames) {
    if (value == kernel) {
      return name;
    }
  }
  return {};
}

std::optional<ProductKernel> kernel_named(const std::string& name) {
  for (const auto& [value, text] : kNames) {
    if (text == name) {
      return value;
    }
  }
  return std::nullopt;
}

HostKernel usual_host_kernel() {
  if (!has_block_kernel()) {
    return {ProductKernel::kLibrary, "this processor or LibTorch has no block kernel of oneDNN's"};
  }
  if (!is_amd_processor()) {
    return {ProductKernel::kLibrary, str(processor_maker_text(), ": ", library_name(), " is usual there")};
  }
  const bool is_limited = !limiting_setting(at::kFloat).empty();  // which the start-up report names
  return {ProductKernel::kBlocked, is_limited ? "AMD processor" : "AMD processor: MKL is half as fast there"};
}

const HostKernel& host_kernel() {
  return kernel_of_process();
}

void set_host_kernel(HostKernel kernel) {
  VH_ASSERT(
      kernel.kernel == ProductKernel::kLibrary || (kernel.kernel == ProductKernel::kBlocked && has_block_kernel()),
      str("the kernel ", kernel_name(kernel.kernel), " for fp32 products"));
  kernel_of_process() = std::move(kernel);
}

std::string processor_maker_text() {
  if (is_amd_processor()) {
    return "AMD processor";
  }
  return is_intel_processor() ? "Intel processor" : "processor of another maker";
}

std::string library_name() {
  return at::hasMKL() ? "MKL" : "the BLAS";
}

}  // namespace vit_hybrid::kernels
