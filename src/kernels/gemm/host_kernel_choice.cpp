// The margin, and the words for what came out.
#include "src/kernels/gemm/host_kernel_choice.h"

#include <algorithm>
#include <cmath>

#include "src/base/text.h"

namespace vit_hybrid::kernels {

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
