// A fake of cuBLASLt: algorithms that a test makes up, and what a plan asked for.
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

struct FakeCublasLt {
  std::vector<FakeAlgorithm> algorithms;  ///< in the heuristic's order
  cublasStatus_t heuristic = CUBLAS_STATUS_SUCCESS;

  // What was asked for last.
  std::map<int, uint64_t> preferences;
  int requested = 0;
  double beta = -1.0;
  size_t workspace = 0;
  std::vector<int32_t> runs;  ///< ids

  int num_objects = 0;  ///< descriptions, layouts and preferences that are alive
};

FakeCublasLt& fake_cublaslt();

}  // namespace vit_hybrid::testing
