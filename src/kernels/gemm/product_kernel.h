// The kernels of products on the host (MKL, oneDNN, own blocks), and the choice among them by their times (autotuning).
#pragma once

#include <optional>
#include <string>

#include "src/kernels/gemm/kernel_choice.h"

namespace vit_hybrid::kernels {

/// How a product on the host is computed. (Those on GPUs: device_products.h.)
enum class ProductKernel {
  kLibrary,    ///< ATen's: MKL or another BLAS
  kBlocked,    ///< ours around oneDNN's block kernel, fp32 and bf16
  kConverted,  ///< half-length types in fp32: operands are converted, the result is rounded
};

/// "library", "blocked", "converted": their names in a table of choices.
std::string kernel_name(ProductKernel kernel);
/// Nothing for a name that is none of them.
std::optional<ProductKernel> kernel_named(const std::string& name);

/// The kernel of large fp32 products on the host, and why it is that one.
struct HostKernel {
  ProductKernel kernel = ProductKernel::kLibrary;  ///< kLibrary or kBlocked
  std::string reason;                              ///< in a few words, for the start-up report
  bool is_rare = false;  ///< products of the model's blocks are too small for it: the library computes those

  bool operator==(const HostKernel&) const = default;
};

/// The one that processors of this one's maker are known to be fast with.
HostKernel usual_host_kernel();

/// usual_host_kernel() until another one is set; on the ranks of a run the same kernel.
const HostKernel& host_kernel();
/// While no product is computed. kBlocked: where has_block_kernel().
void set_host_kernel(HostKernel kernel);

/// "AMD processor", "Intel processor", "processor of another maker".
std::string processor_maker_text();
/// "MKL", or "the BLAS" where LibTorch has another one.
std::string library_name();

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
