// The choice between MKL and own blocks for the host's fp32 products, by their times. Pure.
#pragma once

#include <string>

#include "src/kernels/gemm/kernel_choice.h"
#include "src/kernels/gemm/product_kernel.h"

namespace vit_hybrid::kernels {

/// Name of the choice in a KernelTable. It says nothing of shapes: one kernel computes all large products of a run.
inline constexpr const char* kHostProblem = "fp32 products on the host";

/// How much faster than the usual kernel the other must be to be taken: so much that starts on machines of one kind,
/// whose times differ by some per cent, choose alike, and compute the same bits.
inline constexpr double kClearlyFaster = 1.1;

/// Microseconds of the same products by both kernels.
struct HostTimes {
  double blocked = 0.0;
  double library = 0.0;
};

/// `usual` unless the other is at least kClearlyFaster times as fast. Where a time is none (not finite, not positive)
/// `usual` too. `maker` is processor_maker_text(). The choice's text is the reason for HostKernel.
KernelChoice choose_host_kernel(ProductKernel usual, const HostTimes& times, const std::string& maker);

/// `usual`, and why nothing was measured: "--deterministic".
KernelChoice unmeasured_host_kernel(ProductKernel usual, const std::string& why, const std::string& maker);

}  // namespace vit_hybrid::kernels
