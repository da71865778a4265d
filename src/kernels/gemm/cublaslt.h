// Products by cuBLASLt: described to it, the algorithm chosen by measuring, and kept as plans of each GPU.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/cuda/CUDAStream.h>
#include <cublasLt.h>

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "src/kernels/gemm/device_products.h"

namespace vit_hybrid::kernels {

/// A configured kernel of cuBLASLt.
struct ProductAlgorithm {
  cublasLtMatmulAlgo_t bytes;

  /// From kernel(), of the same version of cuBLASLt.
  static ProductAlgorithm from_kernel(const std::string& kernel);
  std::string kernel() const;  ///< its bytes in hexadecimal digits
  std::string text() const;    ///< "algorithm 66, tile 24, stages 36, 2 parts of K"
  AlgorithmTraits traits() const;
};

/// Contiguous tensors of a product in BLAS's order; `vector` is the bias, or where the bias gradient is written (not
/// added); `pre_activation`, of the result's shape, what GELU is applied to: written with kBiasGelu, read with
/// kGeluGradient. Both are of the result's type; one that the product does not have is not looked at.
struct ProductOperands {
  at::Tensor a = {};
  at::Tensor b = {};
  at::Tensor d = {};
  at::Tensor vector = {};
  at::Tensor pre_activation = {};

  /// ProductProblem's, of all that are defined.
  int alignment() const;
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

/// The choice, in a KernelTable, of a kernel of its own for a product's extra.
inline constexpr const char* kApart = "apart";

/// Each problem's plan is made once, with the algorithm that kernel_table() has for it, else the first of
/// ProductPlan::algorithms() that runs. Forward and backward, which run in different threads, may use it.
class DeviceProducts {
 public:
  /// That of a GPU, which lives as long as the process.
  static DeviceProducts& of(c10::Device device);

  explicit DeviceProducts(c10::Device device);
  DeviceProducts(const DeviceProducts&) = delete;
  DeviceProducts& operator=(const DeviceProducts&) = delete;

  /// Computes the product, with the operands' alignment, on the current stream. False, and nothing is done, where it
  /// cannot be computed so: where an extra goes apart, and where cuBLASLt has no kernel.
  bool run(ProductProblem problem, const ProductOperands& operands);
  /// The same with an algorithm and a plan() of the caller's; false where cuBLASLt refuses the algorithm.
  bool run(ProductPlan& plan, const ProductAlgorithm& algorithm, const ProductOperands& operands);
  ProductPlan plan(const ProductProblem& problem) const { return {problem, handle_, workspace_bytes_}; }

  /// Whether run() computes the problem, as far as cuBLASLt has told; results may be undefined still.
  bool has_kernel(ProductProblem problem, const ProductOperands& operands);

  void forget_plans();
  /// Names of the problems computed so far that kernel_table() had nothing for, in ascending order. Their kernel is the
  /// first that cuBLASLt names and that computes as promised and runs.
  std::vector<std::string> unmeasured();

 private:
  struct Ready {
    ProductPlan plan;
    std::vector<ProductAlgorithm> algorithms;  ///< the first one runs; none: run() is false
    bool is_measured = false;
  };
  Ready& ready(const ProductProblem& problem);
  Ready prepare(const ProductProblem& problem);
  void* workspace(const c10::cuda::CUDAStream& stream);

  std::mutex mutex_;
  size_t workspace_bytes_;
  cublasLtHandle_t handle_ = nullptr;
  std::map<ProductProblem, Ready> products_;
  std::map<c10::StreamId, at::Tensor> workspaces_;  // products of one stream run one after the other
};

}  // namespace vit_hybrid::kernels
