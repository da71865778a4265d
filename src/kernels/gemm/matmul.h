// The matrix products of linear layers (GEMM), the one place that chooses how they are computed, and the timer of the
// choice on the host (autotuning).
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "src/kernels/gelu.h"
#include "src/kernels/gemm/kernel_choice.h"
#include "src/kernels/gemm/packing.h"

namespace vit_hybrid::kernels {

// Types: fp64, fp32, bf16 and fp16. Sums of products are fp32 (fp64 for fp64), the bias is added to them, and the
// result is rounded once. R, the number of rows, may be 0.

/// How a product on the host is computed. (Those on GPUs: device_products.h.)
enum class ProductKernel {
  kLibrary,    ///< ATen's: MKL or another BLAS
  kBlocked,    ///< ours around oneDNN's block kernel, fp32 and bf16
  kConverted,  ///< half-length types in fp32: operands are converted, the result is rounded
};

/// The kernel of large fp32 products on the host, and why it is that one.
struct HostKernel {
  ProductKernel kernel = ProductKernel::kLibrary;  ///< kLibrary or kBlocked
  std::string reason;                              ///< in a few words, for the start-up report
  bool is_rare = false;  ///< products of the model's blocks are too small for it: the library computes those

  bool operator==(const HostKernel&) const = default;
};

/// The name of kLibrary and kBlocked in a table of choices: "library", "blocked"; and back, nothing for another name.
std::string host_kernel_name(ProductKernel kernel);
std::optional<ProductKernel> host_kernel_named(const std::string& name);

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

/// `usual` unless the other is at least kClearlyFaster times as fast, by the microseconds of the same products. Where a
/// time is none (not finite, not positive) `usual` too. The choice's text is the reason for HostKernel.
KernelChoice choose_host_kernel(ProductKernel usual, double blocked, double library);

/// `usual`, and why nothing was measured: "--deterministic".
KernelChoice unmeasured_host_kernel(ProductKernel usual, const std::string& why);

/// The kernel for rows [R, K] (of this type) times a weight [M, K]. Depends on the shape, the type, the processor and
/// host_kernel(), not on the number of threads.
ProductKernel choose_product_kernel(const at::Tensor& rows, int64_t num_outputs);

/// Whether products of this type are computed on the host in fp32: fp32 itself, and half-length types for which this
/// processor or LibTorch has no kernel.
bool multiplies_in_fp32(at::ScalarType type);

/// Whether a product in fp32 is so large that host_kernel() computes it; smaller ones are over before blocks pay, and
/// are the library's.
bool is_large_product(int64_t rows, int64_t outputs, int64_t inputs);

/// One line for the start-up report: how linear layers of this type, and GELU after them, are computed on this device,
/// and why.
std::string product_kernel_text(c10::Device device, at::ScalarType type, GeluKind kind);

/// Makes the copies of a weight that large products of its type take on the host: packed, and in fp32 where they are
/// computed in it. They make them themselves, the first for each `version`. False where they take none.
bool copy_for_products(PackedWeight& weight, int64_t version);

/// x [R, K] times weight [M, K] transposed, plus bias [M] unless it is undefined: [R, M]. `version` is that of the
/// weight's values.
at::Tensor linear_forward(const at::Tensor& x, PackedWeight& weight, int64_t version, const at::Tensor& bias);

/// gelu(z), [R, M], of z = linear_forward(x, weight, version, bias), unrounded where the product runs on the host or
/// has GELU in it; z itself is put into `pre_activation` unless that is null.
at::Tensor linear_gelu_forward(const at::Tensor& x, PackedWeight& weight, int64_t version, const at::Tensor& bias,
                               GeluKind kind, at::Tensor* pre_activation);

/// What linear_gelu_forward() puts into `pre_activation`, the same bits.
at::Tensor linear_pre_activation(const at::Tensor& x, PackedWeight& weight, int64_t version, const at::Tensor& bias,
                                 GeluKind kind);

/// dy [R, M] times weight [M, K]: the gradient of the input, [R, K].
at::Tensor linear_backward_input(const at::Tensor& dy, PackedWeight& weight, int64_t version);

/// Of a layer whose input was gelu(z), z [R, K]: the gradient of z, [R, K], linear_backward_input() times GELU's slope.
at::Tensor linear_gelu_backward_input(const at::Tensor& dy, PackedWeight& weight, int64_t version, GeluKind kind,
                                      const at::Tensor& z);

/// Whether linear_gelu_backward_input() is one kernel for `rows` rows.
bool fuses_gelu_backward(const PackedWeight& weight, int64_t rows, GeluKind kind);

/// gradient [M, K] += dy [R, M] transposed times x [R, K], and bias_gradient [M] += the sum over the rows of dy unless
/// it is undefined. Gradients may have a wider type than dy and x.
void add_weight_gradient(const at::Tensor& gradient, const at::Tensor& dy, const at::Tensor& x,
                         const at::Tensor& bias_gradient);

/// A layer [outputs, inputs] of a rank as a run computes it.
struct HostLayer {
  enum class Passes { kForward, kForwardAndBackward };

  int64_t rows = 0;  ///< of a micro-batch
  int64_t outputs = 0;
  int64_t inputs = 0;
  int64_t rows_per_packing = 0;  ///< between two changes of the weight; 0: it never changes
  Passes passes = Passes::kForwardAndBackward;

  bool operator==(const HostLayer&) const = default;
};

/// Bytes that a layer's products take on the host beside their operands and results.
struct HostLayerBytes {
  int64_t packed = 0;   ///< copies of the weight, which stay
  int64_t working = 0;  ///< workspaces of the product that takes most
};

/// What differs between layers of one size.
struct HostLayerUse {
  at::ScalarType type = at::kFloat;      ///< of rows and weight
  at::ScalarType gradient = at::kFloat;  ///< of the weight's gradient
  bool has_input_gradient = true;        ///< the image needs none
  bool has_gelu = false;                 ///< linear_gelu_forward()
};

/// The bytes of `layer` where `fp32` is host_kernel().kernel. For forward and backward.
HostLayerBytes host_layer_bytes(const HostLayer& layer, const HostLayerUse& use, ProductKernel fp32, int threads);

/// As much of the layer as `threads` threads compute in some milliseconds: fewer rows, then fewer outputs.
HostLayer measured_part(HostLayer layer, int threads);

/// A timer of the layer's products in fp32, with each kernel through the same functions as in a step: microseconds, and
/// of packing the weight, where the kernel needs that, the layer's share (a weight that never changes is packed by the
/// first call alone). host_kernel() is the kernel meanwhile. GELU is left out: own blocks apply it to tiles of fc1's
/// output and the library in a pass of its own, which makes a difference of about 1 % of the forward.
std::function<double(ProductKernel)> host_kernel_timer(const HostLayer& layer);

}  // namespace vit_hybrid::kernels
