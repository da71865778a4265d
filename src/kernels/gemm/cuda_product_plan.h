// ProductPlan: a product described to cuBLASLt, and the algorithms that it offers for it.
#pragma once

#include <cublasLt.h>

#include <memory>
#include <string>
#include <vector>

#include "src/kernels/gemm/device_kernels.h"
#include "src/kernels/gemm/product_problem.h"
#include "src/kernels/gemm/product_rules.h"

namespace vit_hybrid::kernels {

/// Throws Error(kInternal) with cuBLAS's own text if `status` is an error; `call` names the function.
void check_cublas(cublasStatus_t status, const char* call);

/// A configured kernel of cuBLASLt.
class ProductAlgorithm {
 public:
  explicit ProductAlgorithm(const cublasLtMatmulAlgo_t& bytes) : bytes_(bytes) {}
  /// From kernel(), of the same version of cuBLASLt.
  static ProductAlgorithm from_kernel(const std::string& kernel);

  const cublasLtMatmulAlgo_t* get() const { return &bytes_; }
  std::string kernel() const;  ///< its bytes in hexadecimal digits
  std::string text() const;    ///< "algorithm 66, tile 24, stages 36, 2 parts of K"
  AlgorithmTraits traits() const;

 private:
  cublasLtMatmulAlgo_t bytes_;
};

/// Device addresses of a product in BLAS's order; `vector` is the bias, or where the bias gradient is written (not
/// added), of the result's type.
struct ProductOperands {
  const void* a = nullptr;
  const void* b = nullptr;
  void* d = nullptr;
  void* vector = nullptr;
};

class ProductPlan {
 public:
  /// `handle` outlives the plan. Algorithms may work in `workspace_bytes`.
  ProductPlan(const ProductProblem& problem, cublasLtHandle_t handle, size_t workspace_bytes);

  /// At most `most`, those first that cuBLASLt takes for the fastest; none where it cannot compute this problem. All
  /// are as promised, and the device accepts them.
  std::vector<ProductAlgorithm> algorithms(int most) const;
  /// Whether the device can run it, of another device or program perhaps.
  bool accepts(const ProductAlgorithm& algorithm) const;
  /// False, and nothing is done, where cuBLASLt refuses the algorithm after all. Not from two threads at once.
  bool run(const ProductAlgorithm& algorithm, const ProductOperands& operands, void* workspace, cudaStream_t stream);

 private:
  template <class T, cublasStatus_t (*destroy)(T*)>
  struct Destroy {
    void operator()(T* object) const { destroy(object); }
  };
  using Description =
      std::unique_ptr<cublasLtMatmulDescOpaque_t, Destroy<cublasLtMatmulDescOpaque_t, &cublasLtMatmulDescDestroy>>;
  using Layout = std::unique_ptr<cublasLtMatrixLayoutOpaque_t,
                                 Destroy<cublasLtMatrixLayoutOpaque_t, &cublasLtMatrixLayoutDestroy>>;
  using Preference = std::unique_ptr<cublasLtMatmulPreferenceOpaque_t,
                                     Destroy<cublasLtMatmulPreferenceOpaque_t, &cublasLtMatmulPreferenceDestroy>>;

  static Layout make_layout(const ColumnMajor& matrix, at::ScalarType type);
  Preference make_preference() const;
  template <class Value>
  void set(cublasLtMatmulDescAttributes_t attribute, const Value& value);

  ProductProblem problem_;
  ColumnMajorProduct product_;
  cublasLtHandle_t handle_;
  size_t workspace_bytes_;
  Description description_;
  Layout a_;
  Layout b_;
  Layout d_;
};

}  // namespace vit_hybrid::kernels
