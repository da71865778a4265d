// A fake of cuBLASLt: the program's own calls come here instead of to the library. What it refuses is in
// fake_cublaslt_checks.h, but for what depends on the epilogue.
#include "tests/src/kernels/gemm/fake_cublaslt.h"

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "tests/src/kernels/gemm/fake_cublaslt_checks.h"

using vit_hybrid::testing::fake_cublaslt;
using vit_hybrid::testing::FakeAlgorithm;
using vit_hybrid::testing::FakeDescription;
using vit_hybrid::testing::FakeLayout;
using vit_hybrid::testing::FakeLayouts;
using vit_hybrid::testing::size_of;

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

FakeLayouts layouts_of(cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c,
                       cublasLtMatrixLayout_t d) {
  const auto& layouts = fake_cublaslt().layouts;
  return {layouts.at(a), layouts.at(b), layouts.at(c), layouts.at(d)};
}

double value_at(const void* data, cudaDataType_t type, int64_t i) {
  switch (type) {
    case CUDA_R_64F:
      return static_cast<const double*>(data)[i];
    case CUDA_R_16F:
      return static_cast<const c10::Half*>(data)[i];
    case CUDA_R_16BF:
      return static_cast<const c10::BFloat16*>(data)[i];
    default:
      return static_cast<const float*>(data)[i];
  }
}

void set_at(void* data, cudaDataType_t type, int64_t i, double value) {
  switch (type) {
    case CUDA_R_64F:
      static_cast<double*>(data)[i] = value;
      break;
    case CUDA_R_16F:
      static_cast<c10::Half*>(data)[i] = static_cast<float>(value);
      break;
    case CUDA_R_16BF:
      static_cast<c10::BFloat16*>(data)[i] = static_cast<float>(value);
      break;
    default:
      static_cast<float*>(data)[i] = static_cast<float>(value);
  }
}

// A matrix as the product sees it.
struct Factor {
  const void* data;
  FakeLayout layout;
  bool transposed;

  int64_t rows() const { return static_cast<int64_t>(transposed ? layout.columns : layout.rows); }
  int64_t columns() const { return static_cast<int64_t>(transposed ? layout.rows : layout.columns); }
  double at(int64_t row, int64_t column) const {
    return value_at(data, layout.type, transposed ? column + row * layout.leading : row + column * layout.leading);
  }
};

uint64_t attribute_of(const FakeDescription& description, int attribute, uint64_t otherwise) {
  const auto found = description.attributes.find(attribute);
  return found == description.attributes.end() ? otherwise : found->second;
}

bool is_transposed(const FakeDescription& description, int attribute) {
  return attribute_of(description, attribute, CUBLAS_OP_N) == CUBLAS_OP_T;
}

bool has_gelu(uint64_t epilogue) {
  return epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS || epilogue == CUBLASLT_EPILOGUE_DGELU;
}

// What the library does not do, whatever the algorithm: a fused bias gradient or GELU in fp64, a bias at an address of
// 2 bytes; and as cublasLt.h has it, GELU's input in columns whose distance is no multiple of 8 or less than one of D.
// Its address must be a multiple of 16, in the library of CUDA 12 and 13.
bool is_refused(const FakeDescription& description, const FakeLayout& d) {
  const auto epilogue = attribute_of(description, CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_DEFAULT);
  const auto bias = attribute_of(description, CUBLASLT_MATMUL_DESC_BIAS_POINTER, 0);
  const auto leading = attribute_of(description, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, 0);
  const auto auxiliary = attribute_of(description, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, 0);
  const bool is_badly_placed = leading % 8 != 0 || leading < d.rows || auxiliary == 0 || auxiliary % 16 != 0;
  return ((epilogue == CUBLASLT_EPILOGUE_BGRADB || has_gelu(epilogue)) && description.scale == CUDA_R_64F) ||
         (epilogue != CUBLASLT_EPILOGUE_DEFAULT && bias % 4 != 0) || (has_gelu(epilogue) && is_badly_placed);
}

// The part of GELU with tanh that z is multiplied by, and GELU's slope.
double gate(double z) {
  return 0.5 + 0.5 * std::tanh(std::sqrt(2.0 / M_PI) * (z + 0.044715 * z * z * z));
}

double slope(double z) {
  return gate(z) + z * 2.0 * std::sqrt(2.0 / M_PI) * (1.0 + 3.0 * 0.044715 * z * z) * gate(z) * (1.0 - gate(z));
}

// D = alpha op(A) op(B) + beta C, with the bias of D's rows added, and then GELU applied to what the auxiliary matrix
// gets; or multiplied by GELU's slope at the auxiliary matrix; or the sums of op(B) over the inner dimension, one for
// each of D's columns, written where the bias would be.
cublasStatus_t multiply(const FakeDescription& description, double alpha, double beta, const Factor& a, const Factor& b,
                        const void* c, const FakeLayout& d_layout, void* d) {
  const int64_t rows = a.rows(), inner = a.columns(), columns = b.columns();
  if (b.rows() != inner || static_cast<int64_t>(d_layout.rows) != rows ||
      static_cast<int64_t>(d_layout.columns) != columns) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  const auto epilogue = attribute_of(description, CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_DEFAULT);
  auto* const bias = reinterpret_cast<void*>(attribute_of(description, CUBLASLT_MATMUL_DESC_BIAS_POINTER, 0));
  auto* const auxiliary =
      reinterpret_cast<void*>(attribute_of(description, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, 0));
  const auto leading = static_cast<int64_t>(attribute_of(description, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, 0));
  for (int64_t column = 0; column < columns; ++column) {
    double sum_of_b = 0.0;
    for (int64_t k = 0; k < inner; ++k)
      sum_of_b += b.at(k, column);
    if (epilogue == CUBLASLT_EPILOGUE_BGRADB) set_at(bias, d_layout.type, column, sum_of_b);
    for (int64_t row = 0; row < rows; ++row) {
      const int64_t at = row + column * d_layout.leading;
      double sum = beta == 0.0 ? 0.0 : beta * value_at(c, d_layout.type, at);
      for (int64_t k = 0; k < inner; ++k)
        sum += alpha * a.at(row, k) * b.at(k, column);
      if (epilogue == CUBLASLT_EPILOGUE_BIAS || epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS) {
        sum += value_at(bias, d_layout.type, row);
      }
      if (epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS) {
        set_at(auxiliary, d_layout.type, row + column * leading, sum);
        sum *= gate(sum);
      } else if (epilogue == CUBLASLT_EPILOGUE_DGELU) {
        sum *= slope(value_at(auxiliary, d_layout.type, row + column * leading));
      }
      set_at(d, d_layout.type, at, sum);
    }
  }
  return CUBLAS_STATUS_SUCCESS;
}

}  // namespace

const char* cublasLtGetStatusString(cublasStatus_t status) {
  return status == CUBLAS_STATUS_EXECUTION_FAILED ? "fake: execution failed" : "fake: another status";
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* description, cublasComputeType_t compute,
                                        cudaDataType_t scale) {
  create(description);
  fake_cublaslt().descriptions[*description] = {compute, scale, {}};
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t description) {
  fake_cublaslt().descriptions.erase(description);
  return destroy(description);
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t description,
                                              cublasLtMatmulDescAttributes_t attribute, const void* value,
                                              size_t size) {
  if (value == nullptr || size != size_of(attribute)) return CUBLAS_STATUS_INVALID_VALUE;
  uint64_t number = 0;
  std::memcpy(&number, value, size);
  fake_cublaslt().descriptions[description].attributes[attribute] = number;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType type, uint64_t rows,
                                          uint64_t columns, int64_t leading) {
  create(layout);
  fake_cublaslt().layouts[*layout] = {type, rows, columns, leading};
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  fake_cublaslt().layouts.erase(layout);
  return destroy(layout);
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  fake_cublaslt().preferences.clear();
  return create(preference);
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  return destroy(preference);
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t /*preference*/,
                                                    cublasLtMatmulPreferenceAttributes_t attribute, const void* value,
                                                    size_t size) {
  if (value == nullptr || size != size_of(attribute)) return CUBLAS_STATUS_INVALID_VALUE;
  uint64_t number = 0;
  std::memcpy(&number, value, size);
  fake_cublaslt().preferences[attribute] = number;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t /*handle*/, cublasLtMatmulDesc_t description,
                                              cublasLtMatrixLayout_t /*a*/, cublasLtMatrixLayout_t /*b*/,
                                              cublasLtMatrixLayout_t /*c*/, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t /*preference*/, int requested,
                                              cublasLtMatmulHeuristicResult_t results[], int* found) {
  auto& fake = fake_cublaslt();
  fake.requested = requested;
  *found = 0;
  if (fake.computes && is_refused(fake.descriptions.at(description), fake.layouts.at(d)))
    return CUBLAS_STATUS_INVALID_VALUE;
  *found = std::min(requested, static_cast<int>(fake.algorithms.size()));
  for (int i = 0; i < *found; ++i) {
    results[i] = {};
    results[i].algo.data[0] = static_cast<uint64_t>(i);
    results[i].algo.data[1] = vit_hybrid::testing::preferred_alignments(fake.preferences);
    results[i].state = fake.algorithms[static_cast<size_t>(i)].offered;
  }
  return fake.heuristic;
}

cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t /*handle*/, cublasLtMatmulDesc_t description,
                                       cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c,
                                       cublasLtMatrixLayout_t d, const cublasLtMatmulAlgo_t* algorithm,
                                       cublasLtMatmulHeuristicResult_t* result) {
  const cublasStatus_t status = check_product(fake_cublaslt().descriptions.at(description), layouts_of(a, b, c, d));
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  result->workspaceSize = algorithm_of(*algorithm).workspace;
  return algorithm_of(*algorithm).checked;
}

cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t* algorithm,
                                                    cublasLtMatmulAlgoConfigAttributes_t attribute, void* value,
                                                    size_t size, size_t* written) {
  if (value == nullptr || size != size_of(attribute)) return CUBLAS_STATUS_INVALID_VALUE;
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

cublasStatus_t cublasLtMatmul(cublasLtHandle_t /*handle*/, cublasLtMatmulDesc_t description, const void* alpha,
                              const void* a, cublasLtMatrixLayout_t a_layout, const void* b,
                              cublasLtMatrixLayout_t b_layout, const void* beta, const void* c,
                              cublasLtMatrixLayout_t c_layout, void* d, cublasLtMatrixLayout_t d_layout,
                              const cublasLtMatmulAlgo_t* algorithm, void* workspace, size_t workspace_size,
                              cudaStream_t /*stream*/) {
  auto& fake = fake_cublaslt();
  const FakeDescription& described = fake.descriptions.at(description);
  const FakeLayouts layouts = layouts_of(a_layout, b_layout, c_layout, d_layout);
  if (const auto refusal = check_product(described, layouts); refusal != CUBLAS_STATUS_SUCCESS) return refusal;
  const auto refusal = check_addresses(described, {a, b, c, d, workspace, workspace_size}, algorithm->data[1],
                                       algorithm_of(*algorithm).workspace);
  if (refusal != CUBLAS_STATUS_SUCCESS) return refusal;
  fake.beta = value_at(beta, described.scale, 0);
  fake.workspace = workspace_size;
  fake.runs.push_back(algorithm_of(*algorithm).id);
  const cublasStatus_t status = algorithm_of(*algorithm).run;
  if (!fake.computes || status != CUBLAS_STATUS_SUCCESS) return status;
  if (is_refused(described, fake.layouts.at(d_layout))) return CUBLAS_STATUS_INVALID_VALUE;
  const Factor left{a, fake.layouts.at(a_layout), is_transposed(described, CUBLASLT_MATMUL_DESC_TRANSA)};
  const Factor right{b, fake.layouts.at(b_layout), is_transposed(described, CUBLASLT_MATMUL_DESC_TRANSB)};
  return multiply(described, value_at(alpha, described.scale, 0), fake.beta, left, right, c, fake.layouts.at(d_layout),
                  d);
}
