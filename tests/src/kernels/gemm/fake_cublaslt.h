// A fake of cuBLASLt: algorithms that a test makes up, what a plan asked for, and the product that was described: D,
// and what the epilogue adds or sums up, computed on the host from descriptions, layouts and pointers alone.
#pragma once

#include <cublasLt.h>

#include <cstdint>
#include <map>
#include <vector>

namespace vit_hybrid::testing {

struct FakeAlgorithm {
  int32_t id = 0;
  int32_t parts = 1;
  uint32_t reduction = CUBLASLT_REDUCTION_SCHEME_NONE;
  size_t workspace = 0;
  cublasStatus_t offered = CUBLAS_STATUS_SUCCESS;  ///< its state among the results of the heuristic
  cublasStatus_t checked = CUBLAS_STATUS_SUCCESS;
  cublasStatus_t run = CUBLAS_STATUS_SUCCESS;
};

/// What a cublasLtMatmulDesc_t was told.
struct FakeDescription {
  cublasComputeType_t compute = CUBLAS_COMPUTE_32F;
  cudaDataType_t scale = CUDA_R_32F;
  std::map<int, uint64_t> attributes;
};

/// A cublasLtMatrixLayout_t: column-major, as no plan asks for another order.
struct FakeLayout {
  cudaDataType_t type = CUDA_R_32F;
  uint64_t rows = 0, columns = 0;
  int64_t leading = 0;
};

struct FakeCublasLt {
  std::vector<FakeAlgorithm> algorithms;  ///< in the heuristic's order
  cublasStatus_t heuristic = CUBLAS_STATUS_SUCCESS;

  // What was asked for last.
  std::map<int, uint64_t> preferences;
  int requested = 0;
  double beta = -1.0;
  size_t workspace = 0;
  std::vector<int32_t> runs;  ///< ids

  std::map<const void*, FakeDescription> descriptions;
  std::map<const void*, FakeLayout> layouts;
  bool computes = false;  ///< the product too, of operands on the host

  int num_objects = 0;  ///< descriptions, layouts and preferences that are alive
};

FakeCublasLt& fake_cublaslt();

}  // namespace vit_hybrid::testing
