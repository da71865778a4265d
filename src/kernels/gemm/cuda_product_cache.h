// DeviceProducts: cuBLASLt's handle on one GPU, and the plans of the products computed there.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/cuda/CUDAStream.h>
#include <cublasLt.h>

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "src/kernels/gemm/cuda_product_plan.h"

namespace vit_hybrid::kernels {

/// The choice, in a KernelTable, of a kernel of its own for a product's extra.
inline constexpr const char* kApart = "apart";
/// Algorithms that are asked for, and tried where kernels are measured.
inline constexpr int kMostAlgorithms = 32;

/// Each problem's plan is made once, with the algorithm that kernel_table() has for it, else the first of
/// ProductPlan::algorithms() that runs. Forward and backward, which run in different threads, may use it.
class DeviceProducts {
 public:
  /// That of a GPU, which lives as long as the process.
  static DeviceProducts& of(c10::Device device);
  /// Those of all GPUs used so far.
  static std::vector<DeviceProducts*> all();

  explicit DeviceProducts(c10::Device device);
  DeviceProducts(const DeviceProducts&) = delete;
  DeviceProducts& operator=(const DeviceProducts&) = delete;

  /// Computes the product on the current stream. False, and nothing is done, where it cannot be computed so: where an
  /// extra goes apart, and where cuBLASLt has no kernel.
  bool run(const ProductProblem& problem, const ProductOperands& operands);
  /// The same with an algorithm and a plan() of the caller's; false where cuBLASLt refuses the algorithm.
  bool run(ProductPlan& plan, const ProductAlgorithm& algorithm, const ProductOperands& operands);
  ProductPlan plan(const ProductProblem& problem) const { return {problem, handle_, workspace_bytes_}; }

  void forget_plans();
  /// Names of the problems computed so far that kernel_table() had nothing for, in ascending order.
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
  std::unordered_map<ProductProblem, Ready, ProductProblemHash> products_;
  std::map<c10::StreamId, at::Tensor> workspaces_;  // products of one stream run one after the other
};

}  // namespace vit_hybrid::kernels
