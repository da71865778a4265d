// What cuBLASLt refuses whatever the algorithm, as cublasLt.h and its manual say, for the fake of it.
#include "tests/src/kernels/gemm/fake_cublaslt_checks.h"

#include <algorithm>
#include <array>
#include <utility>

namespace vit_hybrid::testing {

namespace {

// The rows of the manual's table for cublasLtMatmul() that a trainer can ask for: factors of one type, C and D of one.
struct Types {
  cublasComputeType_t compute;
  cudaDataType_t scale, factors, result;
};
constexpr std::array<Types, 8> kSupported = {{{CUBLAS_COMPUTE_16F, CUDA_R_16F, CUDA_R_16F, CUDA_R_16F},
                                              {CUBLAS_COMPUTE_32F, CUDA_R_32F, CUDA_R_16F, CUDA_R_16F},
                                              {CUBLAS_COMPUTE_32F, CUDA_R_32F, CUDA_R_16F, CUDA_R_32F},
                                              {CUBLAS_COMPUTE_32F, CUDA_R_32F, CUDA_R_16BF, CUDA_R_16BF},
                                              {CUBLAS_COMPUTE_32F, CUDA_R_32F, CUDA_R_16BF, CUDA_R_32F},
                                              {CUBLAS_COMPUTE_32F, CUDA_R_32F, CUDA_R_32F, CUDA_R_32F},
                                              {CUBLAS_COMPUTE_32F_FAST_TF32, CUDA_R_32F, CUDA_R_32F, CUDA_R_32F},
                                              {CUBLAS_COMPUTE_64F, CUDA_R_64F, CUDA_R_64F, CUDA_R_64F}}};

constexpr int kMatrices = 4;
constexpr int kAlignmentBits = 16;

uint64_t value_of(const std::map<int, uint64_t>& values, int attribute, uint64_t otherwise) {
  const auto found = values.find(attribute);
  return found == values.end() ? otherwise : found->second;
}

bool has_vector(uint64_t epilogue) {
  switch (epilogue) {
    case CUBLASLT_EPILOGUE_BIAS:
    case CUBLASLT_EPILOGUE_RELU_BIAS:
    case CUBLASLT_EPILOGUE_RELU_AUX_BIAS:
    case CUBLASLT_EPILOGUE_GELU_BIAS:
    case CUBLASLT_EPILOGUE_GELU_AUX_BIAS:
    case CUBLASLT_EPILOGUE_DRELU_BGRAD:
    case CUBLASLT_EPILOGUE_DGELU_BGRAD:
    case CUBLASLT_EPILOGUE_BGRADA:
    case CUBLASLT_EPILOGUE_BGRADB:
      return true;
    default:
      return false;
  }
}

// Rows and columns of op(matrix).
std::pair<uint64_t, uint64_t> shape_of(const FakeDescription& description, int transpose, const FakeLayout& layout) {
  const bool transposed = value_of(description.attributes, transpose, CUBLAS_OP_N) != CUBLAS_OP_N;
  return transposed ? std::pair(layout.columns, layout.rows) : std::pair(layout.rows, layout.columns);
}

}  // namespace

size_t size_of(cublasLtMatmulDescAttributes_t attribute) {
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_COMPUTE_TYPE:
    case CUBLASLT_MATMUL_DESC_SCALE_TYPE:
    case CUBLASLT_MATMUL_DESC_POINTER_MODE:
    case CUBLASLT_MATMUL_DESC_TRANSA:
    case CUBLASLT_MATMUL_DESC_TRANSB:
    case CUBLASLT_MATMUL_DESC_TRANSC:
    case CUBLASLT_MATMUL_DESC_FILL_MODE:
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
    case CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET:
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE:
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE:
      return sizeof(int32_t);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER:
      return sizeof(void*);
    case CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE:
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD:
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE:
      return sizeof(int64_t);
    default:
      return 0;
  }
}

size_t size_of(cublasLtMatmulPreferenceAttributes_t attribute) {
  switch (attribute) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
    case CUBLASLT_MATMUL_PREF_IMPL_MASK:
      return sizeof(uint64_t);
    case CUBLASLT_MATMUL_PREF_SEARCH_MODE:
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
      return sizeof(uint32_t);
    default:
      return 0;
  }
}

size_t size_of(cublasLtMatmulAlgoConfigAttributes_t attribute) {
  switch (attribute) {
    case CUBLASLT_ALGO_CONFIG_ID:
    case CUBLASLT_ALGO_CONFIG_TILE_ID:
    case CUBLASLT_ALGO_CONFIG_SPLITK_NUM:
    case CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME:
    case CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING:
    case CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION:
    case CUBLASLT_ALGO_CONFIG_STAGES_ID:
      return sizeof(uint32_t);
    case CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID:
    case CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID:
      return sizeof(uint16_t);
    default:
      return 0;
  }
}

cublasStatus_t check_product(const FakeDescription& description, const FakeLayouts& layouts) {
  const auto& [a, b, c, d] = layouts;
  const auto is_supported = [&](const Types& types) {
    return types.compute == description.compute && types.scale == description.scale && types.factors == a.type &&
           types.factors == b.type && types.result == c.type && types.result == d.type;
  };
  if (std::none_of(kSupported.begin(), kSupported.end(), is_supported)) return CUBLAS_STATUS_NOT_SUPPORTED;
  for (const FakeLayout* const layout : {&a, &b, &c, &d}) {
    if (layout->leading < static_cast<int64_t>(layout->rows)) return CUBLAS_STATUS_INVALID_VALUE;
  }
  const auto [rows, inner] = shape_of(description, CUBLASLT_MATMUL_DESC_TRANSA, a);
  const auto [inner_of_b, columns] = shape_of(description, CUBLASLT_MATMUL_DESC_TRANSB, b);
  const bool is_product = inner == inner_of_b && d.rows == rows && d.columns == columns;
  // C as D: the library lets only their leading dimensions differ, and not where C is D. The fake takes C for D.
  const bool is_sum = c.rows == d.rows && c.columns == d.columns && c.leading == d.leading;
  return is_product && is_sum ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}

uint64_t preferred_alignments(const std::map<int, uint64_t>& preferences) {
  constexpr uint64_t kDefault = 256;
  constexpr std::array<int, kMatrices> kAttributes = {
      CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
      CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
  uint64_t alignments = 0;
  for (const int attribute : kAttributes)
    alignments = alignments << kAlignmentBits | value_of(preferences, attribute, kDefault);
  return alignments;
}

cublasStatus_t check_addresses(const FakeDescription& description, const FakeAddresses& addresses, uint64_t alignments,
                               size_t workspace_needed) {
  constexpr uintptr_t kWorkspaceAlignment = 256;
  for (const void* const address : {addresses.d, addresses.c, addresses.b, addresses.a}) {
    const uint64_t alignment = alignments % (uint64_t{1} << kAlignmentBits);
    if (alignment == 0 || reinterpret_cast<uintptr_t>(address) % alignment != 0) return CUBLAS_STATUS_INVALID_VALUE;
    alignments >>= kAlignmentBits;
  }
  const bool is_in_vain = workspace_needed > 0 && addresses.workspace == nullptr;
  if (is_in_vain || addresses.workspace_bytes < workspace_needed ||
      reinterpret_cast<uintptr_t>(addresses.workspace) % kWorkspaceAlignment != 0) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  const auto& attributes = description.attributes;
  const bool needs_vector = has_vector(value_of(attributes, CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_DEFAULT));
  return needs_vector && value_of(attributes, CUBLASLT_MATMUL_DESC_BIAS_POINTER, 0) == 0 ? CUBLAS_STATUS_INVALID_VALUE
                                                                                         : CUBLAS_STATUS_SUCCESS;
}

}  // namespace vit_hybrid::testing
