// ProductProblem: a matrix product of a linear layer as a value, and which of a library's algorithms compute it as
// promised.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstddef>
#include <cstdint>
#include <string>

namespace vit_hybrid::kernels {

/// kForward: y [R, M] = x [R, K] W^T. kBackwardInput: dx [R, K] = dy [R, M] W. kWeightGradient: dW [M, K] += dy^T x.
enum class ProductKind { kForward, kBackwardInput, kWeightGradient };

/// What the kernel of the product does besides: add the bias to each row of y, or the sum over the rows of dy.
enum class ProductExtra { kNone, kBias, kBiasGradient };

/// How fp32 factors are multiplied: as they are, or rounded to 11 bits for the tensor cores.
enum class Fp32Products { kExact, kTf32 };

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

  bool operator==(const ProductProblem&) const = default;
  /// One word a property, unique: "forward+bias R12608 M3072 K768 bf16>bf16 16B".
  std::string name() const;
  /// The product alone, whose choice counts where the extra is a kernel of its own.
  ProductProblem without_extra() const;
  double flops() const;
};

struct ProductProblemHash {
  size_t operator()(const ProductProblem& problem) const;
};

/// The problem of kind `kind` with the plain defaults for operands of `type`.
ProductProblem product_problem(ProductKind kind, ProductExtra extra, int64_t rows, int64_t outputs, int64_t inputs,
                               at::ScalarType type);

/// Whether a bias gradient of this type may be fused with the weight gradient's product: cuBLASLt writes its sum in the
/// gradient's type before it is added, which half precision would round twice.
bool may_fuse_bias_gradient(at::ScalarType gradient);

/// "fp64", "fp32", "bf16", "fp16".
std::string short_name(at::ScalarType type);

/// A row-major matrix as BLAS sees it, column-major: `rows` is the extent that is contiguous.
struct ColumnMajor {
  int64_t rows = 0;
  int64_t columns = 0;
  bool transposed = false;  ///< in the product

  int64_t leading() const { return rows; }
  bool operator==(const ColumnMajor&) const = default;
};

/// D [m, n] = op(A) op(B), or D += op(A) op(B), all column-major. BLAS knows no row-major matrices: each of ours is the
/// transpose of a column-major one in the same memory, so D is the transpose of what is wanted, and the factors change
/// places. The bias then runs along D's rows, and the bias gradient is B's sum along k, as cuBLASLt has them. Nothing
/// but column_major() swaps factors; a test on the host walks through it element by element.
struct ColumnMajorProduct {
  enum class Factor { kX, kWeight, kDy };
  Factor a_is = Factor::kWeight;
  Factor b_is = Factor::kX;
  ColumnMajor a;
  ColumnMajor b;
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

/// Whether the algorithm gives what device_products.h promises for the problem.
bool is_as_promised(const ProductProblem& problem, const AlgorithmTraits& algorithm);

/// Device memory that an algorithm may work in, of a GPU of compute capability `capability` (90 for sm_90). Those that
/// cut the inner dimension keep a result in fp32 for each part there.
size_t product_workspace_bytes(int capability);

}  // namespace vit_hybrid::kernels
