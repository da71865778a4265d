// A fake of cuBLASLt: the program's own calls come here instead of to the library.
#include "tests/src/kernels/gemm/fake_cublaslt.h"

#include <algorithm>
#include <cstring>

using vit_hybrid::testing::fake_cublaslt;
using vit_hybrid::testing::FakeAlgorithm;

namespace vit_hybrid::testing {

FakeCublasLt& fake_cublaslt() {
  static FakeCublasLt fake;
  return fake;
}

}  // namespace vit_hybrid::testing

namespace {

// An algorithm's bytes hold its place among the test's.
const FakeAlgorithm& algorithm_of(const cublasLtMatmulAlgo_t& bytes) {
  return fake_cublaslt().algorithms.at(bytes.data[0]);
}

template <class Object>
cublasStatus_t create(Object** object) {
  *object = new Object();
  ++fake_cublaslt().num_objects;
  return CUBLAS_STATUS_SUCCESS;
}

template <class Object>
cublasStatus_t destroy(Object* object) {
  delete object;
  --fake_cublaslt().num_objects;
  return CUBLAS_STATUS_SUCCESS;
}

}  // namespace

const char* cublasLtGetStatusString(cublasStatus_t status) {
  return status == CUBLAS_STATUS_EXECUTION_FAILED ? "fake: execution failed" : "fake: another status";
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* description, cublasComputeType_t /*compute*/,
                                        cudaDataType_t /*scale*/) {
  return create(description);
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t description) {
  return destroy(description);
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t /*description*/,
                                              cublasLtMatmulDescAttributes_t /*attribute*/, const void* /*value*/,
                                              size_t /*size*/) {
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType /*type*/, uint64_t /*rows*/,
                                          uint64_t /*columns*/, int64_t /*leading*/) {
  return create(layout);
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  return destroy(layout);
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  return create(preference);
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  return destroy(preference);
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t /*preference*/,
                                                    cublasLtMatmulPreferenceAttributes_t attribute, const void* value,
                                                    size_t size) {
  uint64_t number = 0;
  std::memcpy(&number, value, size);
  fake_cublaslt().preferences[attribute] = number;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t /*handle*/, cublasLtMatmulDesc_t /*description*/,
                                              cublasLtMatrixLayout_t /*a*/, cublasLtMatrixLayout_t /*b*/,
                                              cublasLtMatrixLayout_t /*c*/, cublasLtMatrixLayout_t /*d*/,
                                              cublasLtMatmulPreference_t /*preference*/, int requested,
                                              cublasLtMatmulHeuristicResult_t results[], int* found) {
  auto& fake = fake_cublaslt();
  fake.requested = requested;
  *found = std::min(requested, static_cast<int>(fake.algorithms.size()));
  for (int i = 0; i < *found; ++i) {
    results[i] = {};
    results[i].algo.data[0] = static_cast<uint64_t>(i);
    results[i].state = fake.algorithms[static_cast<size_t>(i)].offered;
  }
  return fake.heuristic;
}

cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t /*handle*/, cublasLtMatmulDesc_t /*description*/,
                                       cublasLtMatrixLayout_t /*a*/, cublasLtMatrixLayout_t /*b*/,
                                       cublasLtMatrixLayout_t /*c*/, cublasLtMatrixLayout_t /*d*/,
                                       const cublasLtMatmulAlgo_t* algorithm, cublasLtMatmulHeuristicResult_t* result) {
  result->workspaceSize = algorithm_of(*algorithm).workspace;
  return algorithm_of(*algorithm).checked;
}

cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t* algorithm,
                                                    cublasLtMatmulAlgoConfigAttributes_t attribute, void* value,
                                                    size_t size, size_t* written) {
  const FakeAlgorithm& fake = algorithm_of(*algorithm);
  uint32_t number = 0;
  if (attribute == CUBLASLT_ALGO_CONFIG_ID) {
    number = static_cast<uint32_t>(fake.id);
  } else if (attribute == CUBLASLT_ALGO_CONFIG_SPLITK_NUM) {
    number = static_cast<uint32_t>(fake.parts);
  } else if (attribute == CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME) {
    number = fake.reduction;
  }
  std::memcpy(value, &number, size);
  *written = size;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t /*handle*/, cublasLtMatmulDesc_t /*description*/, const void* /*alpha*/,
                              const void* /*a*/, cublasLtMatrixLayout_t /*a_layout*/, const void* /*b*/,
                              cublasLtMatrixLayout_t /*b_layout*/, const void* beta, const void* /*c*/,
                              cublasLtMatrixLayout_t /*c_layout*/, void* /*d*/, cublasLtMatrixLayout_t /*d_layout*/,
                              const cublasLtMatmulAlgo_t* algorithm, void* /*workspace*/, size_t workspace_size,
                              cudaStream_t /*stream*/) {
  auto& fake = fake_cublaslt();
  float number = 0.0F;  // of all products but those in fp64
  std::memcpy(&number, beta, sizeof(number));
  fake.beta = number;
  fake.workspace = workspace_size;
  fake.runs.push_back(algorithm_of(*algorithm).id);
  return algorithm_of(*algorithm).run;
}
