// The kernels of products on the host, and which of them large fp32 products take: a value of the process.
#pragma once

#include <optional>
#include <string>

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

}  // namespace vit_hybrid::kernels
