// Names of kernels, the processor's maker, the value of the process, and the margin of the choice.
#include "src/kernels/gemm/product_kernel.h"

#include <ATen/Context.h>

#include <algorithm>
#include <array>
#include <cmath>
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

namespace {

bool is_time(double microseconds) {
  return std::isfinite(microseconds) && microseconds > 0.0;
}

ProductKernel other_than(ProductKernel kernel) {
  return kernel == ProductKernel::kBlocked ? ProductKernel::kLibrary : ProductKernel::kBlocked;
}

double time_of(ProductKernel kernel, const HostTimes& times) {
  return kernel == ProductKernel::kBlocked ? times.blocked : times.library;
}

std::string spoken_name(ProductKernel kernel) {
  return kernel == ProductKernel::kBlocked ? "own blocks" : library_name();
}

std::string verb(ProductKernel kernel) {
  return kernel == ProductKernel::kBlocked ? " are " : " is ";
}

std::string reason_of(ProductKernel chosen, const HostTimes& times, const std::string& maker) {
  const ProductKernel other = other_than(chosen);
  const double ratio = time_of(other, times) / time_of(chosen, times);
  if (ratio >= 1.0) {
    return str("measured: ", fixed_text(ratio, 2), " times as fast as ", spoken_name(other));
  }
  return str(maker, "; measured: ", spoken_name(other), verb(other), fixed_text(1.0 / ratio, 2), " times as fast, and",
             verb(other), "taken from ", kClearlyFaster, " times on");
}

}  // namespace

KernelChoice choose_host_kernel(ProductKernel usual, const HostTimes& times, const std::string& maker) {
  if (!is_time(times.blocked) || !is_time(times.library)) {
    return unmeasured_host_kernel(usual, "the times that were measured say nothing", maker);
  }
  const ProductKernel other = other_than(usual);
  const ProductKernel chosen = time_of(usual, times) >= kClearlyFaster * time_of(other, times) ? other : usual;
  return {kernel_name(chosen), reason_of(chosen, times, maker), time_of(chosen, times),
          std::min(times.blocked, times.library)};
}

KernelChoice unmeasured_host_kernel(ProductKernel usual, const std::string& why, const std::string& maker) {
  return {kernel_name(usual), str(maker, "; not measured: ", why), 0.0, 0.0};
}

}  // namespace vit_hybrid::kernels
