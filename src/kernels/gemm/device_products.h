// Products of linear layers, GELU and sums of columns on GPUs, and what their kernels are chosen by.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "src/kernels/gelu.h"
#include "src/kernels/gemm/kernel_choice.h"

namespace vit_hybrid::kernels {

/// kForward: y [R, M] = x [R, K] W^T. kBackwardInput: dx [R, K] = dy [R, M] W. kWeightGradient: dW [M, K] += dy^T x.
enum class ProductKind { kForward, kBackwardInput, kWeightGradient };

/// What the kernel of the product does besides: add the bias to each row of y; after that apply GELU (kTanh), and write
/// what it is applied to; the sum over the rows of dy; or multiply dx by GELU's slope (kTanh) at what x was made from.
enum class ProductExtra { kNone, kBias, kBiasGradient, kBiasGelu, kGeluGradient };

/// How fp32 factors are multiplied: as they are, or rounded to 11 bits for the tensor cores.
enum class Fp32Products { kExact, kTf32 };

/// A matrix product of a linear layer as a value.
struct ProductProblem {
  ProductKind kind = ProductKind::kForward;
  ProductExtra extra = ProductExtra::kNone;
  int64_t rows = 0;                    ///< R: tokens of a micro-batch
  int64_t outputs = 0;                 ///< M
  int64_t inputs = 0;                  ///< K
  at::ScalarType type = at::kFloat;    ///< of x, W, y and their gradients' flow (dx, dy)
  at::ScalarType result = at::kFloat;  ///< of what the product writes: `type`, for kWeightGradient that of gradients
  Fp32Products fp32 = Fp32Products::kExact;
  int alignment = 16;  ///< bytes that divide the addresses of all operands; kernels ask for no more than 16

  auto operator<=>(const ProductProblem&) const = default;  // NOLINT(modernize-use-nullptr): it sees a 0 in here
  /// One word a property, unique: "forward+bias R12608 M3072 K768 bf16>bf16 16B".
  std::string name() const;
  /// The product whose choice counts where the extra, of kBiasGelu GELU alone, is a kernel of its own.
  ProductProblem without_extra() const;
  bool has_gelu() const { return extra == ProductExtra::kBiasGelu || extra == ProductExtra::kGeluGradient; }
  double flops() const;
};

/// The problem of kind `kind` with the plain defaults for operands of `type`; `fp32` counts for that type alone.
ProductProblem product_problem(ProductKind kind, ProductExtra extra, int64_t rows, int64_t outputs, int64_t inputs,
                               at::ScalarType type, Fp32Products fp32 = Fp32Products::kExact);

/// Whether sums of parts in this type are as exact as in the type of sums. A bias gradient is fused with the weight
/// gradient's product only then: cuBLASLt writes its sum in the gradient's type before it is added, which half
/// precision would round twice.
bool is_as_wide_as_sums(at::ScalarType type);

/// Whether GELU may be a part of products: cuBLASLt has the one with tanh, and does not say how exact it is, which only
/// the rounding of half precision and of TF32's factors hides.
bool may_fuse_gelu(GeluKind kind, at::ScalarType type, Fp32Products fp32);

/// "fp64", "fp32", "bf16", "fp16".
std::string short_name(at::ScalarType type);

/// A row-major matrix as BLAS sees it, column-major: `rows` is the extent that is contiguous.
struct ColumnMajor {
  int64_t rows = 0;
  int64_t columns = 0;
  bool transposed = false;  ///< in the product
};

/// D [m, n] = op(A) op(B), or D += op(A) op(B), all column-major. BLAS knows no row-major matrices: each of ours is the
/// transpose of a column-major one in the same memory, so D is the transpose of what is wanted, and the factors change
/// places. The bias then runs along D's rows, and the bias gradient is B's sum along k, as cuBLASLt has them.
struct ColumnMajorProduct {
  ColumnMajor a;  ///< W; for kWeightGradient x
  ColumnMajor b;  ///< dy; for kForward x
  ColumnMajor d;
  bool accumulates = false;
};
ColumnMajorProduct column_major(const ProductProblem& problem);

/// Where an algorithm that cuts the inner dimension into parts adds their sums up: in the result itself, one block
/// after the other; or from a workspace in a step of its own, kept there as they were summed or in the result's type.
enum class PartSums { kNone, kInResult, kInSumType, kInResultType };

struct AlgorithmTraits {
  int parts = 1;  ///< of the inner dimension
  PartSums sums = PartSums::kNone;
};

/// Whether the algorithm gives what is promised below for the problem.
bool is_as_promised(const ProductProblem& problem, const AlgorithmTraits& algorithm);

/// Device memory that an algorithm may work in, of a GPU of compute capability `capability` (90 for sm_90). Those that
/// cut the inner dimension keep a result in fp32 for each part there.
size_t product_workspace_bytes(int capability);

/// kFixed: the same bits each time; kernels whose sums depend on which block of threads comes first are passed over.
enum class SumOrder { kAny, kFixed };

/// Of a run, the same on all ranks.
struct DeviceKernelOptions {
  Fp32Products fp32 = Fp32Products::kExact;
  SumOrder order = SumOrder::kAny;
};

/// Sets the options of the process; before its first work on a device. Also for what LibTorch itself computes with
/// cuBLAS and cuDNN: TF32 with kTf32 alone, sums never in half precision, and with kFixed CUBLAS_WORKSPACE_CONFIG,
/// unless it is set.
void set_device_kernel_options(const DeviceKernelOptions& options);
const DeviceKernelOptions& device_kernel_options();

/// Properties of a GPU that kernels differ by.
struct DeviceTraits {
  std::string name;    ///< "NVIDIA H200"
  int capability = 0;  ///< 90 for sm_90
  int multiprocessors = 0;
  int64_t cublaslt_version = 0;
  int64_t cudnn_version = 0;  ///< 91501 for 9.15.1; 0 without cuDNN
};

/// What a KernelTable holds for, as text: GPU, libraries, the order of sums, and the workspace of products.
std::string machine_text(const DeviceTraits& traits, SumOrder order);

/// Of a GPU; a broken invariant for the CPU, and in a program without CUDA.
DeviceTraits device_traits(c10::Device device);

/// Microseconds of the current device that `work` takes, which it puts on the current stream: the least of several
/// rounds, or with Effort::kBrief of two short ones. The first call for a device takes a tenth of a second longer. A
/// broken invariant in a program without CUDA.
double device_microseconds(const std::function<void()>& work, Effort effort = Effort::kFull);

/// Waits for all work on the current device, and throws what went wrong there. A broken invariant in a program without
/// CUDA.
void synchronize_device();

/// Gives memory that LibTorch's allocator holds on the current device and does not use back to the device, so that what
/// measuring needed counts in no peak. A broken invariant in a program without CUDA.
void release_unused_device_memory();

// Types: fp64, fp32, bf16, fp16. Every sum of products is in fp32 (fp64 for fp64) and rounded once to the result's
// type. R, the number of rows, may be 0. Results are on the current stream. In programs without CUDA there are no such
// tensors, and these are broken invariants.

/// x [R, K] times weight [M, K] transposed, plus bias [M] unless it is undefined: [R, M].
at::Tensor device_linear_forward(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias);

/// dy [R, M] times weight [M, K]: [R, K].
at::Tensor device_linear_backward_input(const at::Tensor& dy, const at::Tensor& weight);

/// gradient [M, K] += dy [R, M] transposed times x [R, K], in place by the product itself; and bias_gradient [M] += the
/// sum of dy over its rows, by the same kernel where that is faster, unless bias_gradient is undefined. Gradients may
/// have a wider type than dy and x.
void device_add_weight_gradient(const at::Tensor& gradient, const at::Tensor& dy, const at::Tensor& x,
                                const at::Tensor& bias_gradient);

/// gelu(z) of z = device_linear_forward(), by the same kernel (of the unrounded z) where that was measured to be
/// faster; z is put into `pre_activation` unless that is null.
at::Tensor device_linear_gelu_forward(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                                      GeluKind kind, at::Tensor* pre_activation);
/// What device_linear_gelu_forward() puts into `pre_activation`, the same bits.
at::Tensor device_linear_pre_activation(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                                        GeluKind kind);

/// device_linear_backward_input() times GELU's slope at z [R, K].
at::Tensor device_linear_gelu_backward_input(const at::Tensor& dy, const at::Tensor& weight, GeluKind kind,
                                             const at::Tensor& z);
/// Whether that is one kernel: where it was measured to be faster.
bool device_fuses_gelu_backward(const at::Tensor& weight, int64_t rows, GeluKind kind);

/// Measures what cuBLASLt offers for `problem`, and for one with a bias gradient or GELU also that as a kernel of its
/// own (and the product without it), and puts the fastest that the options allow into kernel_table(). Needs memory for
/// the operands.
void measure_product(const ProductProblem& problem, c10::Device device);

/// Products look into kernel_table() once a problem; after it has changed they must look again.
void forget_product_plans();

/// One line for the start-up report: which kernels compute linear layers of this type, and GELU, and why.
std::string device_product_text(at::ScalarType type, GeluKind kind);

}  // namespace vit_hybrid::kernels
