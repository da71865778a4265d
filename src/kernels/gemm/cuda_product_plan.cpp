// Descriptions of products in cuBLASLt's terms.
#include "src/kernels/gemm/cuda_product_plan.h"

#include <array>
#include <cstdint>
#include <utility>

#include "src/base/error.h"
#include "src/base/text.h"

namespace vit_hybrid::kernels {

namespace {

cudaDataType_t cuda_type(at::ScalarType type) {
  switch (type) {
    case at::kDouble:
      return CUDA_R_64F;
    case at::kFloat:
      return CUDA_R_32F;
    case at::kBFloat16:
      return CUDA_R_16BF;
    case at::kHalf:
      return CUDA_R_16F;
    default:
      fail_invariant("a product of this type", __FILE__, __LINE__, c10::toString(type));
  }
}

cublasComputeType_t compute_type(const ProductProblem& problem) {
  if (problem.type == at::kDouble) {
    return CUBLAS_COMPUTE_64F;
  }
  const bool rounds = problem.type == at::kFloat && problem.fp32 == Fp32Products::kTf32;
  return rounds ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
}

cublasLtEpilogue_t epilogue(ProductExtra extra) {
  switch (extra) {
    case ProductExtra::kNone:
      return CUBLASLT_EPILOGUE_DEFAULT;
    case ProductExtra::kBias:
      return CUBLASLT_EPILOGUE_BIAS;
    case ProductExtra::kBiasGradient:
      return CUBLASLT_EPILOGUE_BGRADB;
  }
  return CUBLASLT_EPILOGUE_DEFAULT;
}

template <class Value>
Value config(const cublasLtMatmulAlgo_t& algorithm, cublasLtMatmulAlgoConfigAttributes_t attribute) {
  Value value{};
  size_t written = 0;
  check_cublas(cublasLtMatmulAlgoConfigGetAttribute(&algorithm, attribute, &value, sizeof(value), &written),
               "cublasLtMatmulAlgoConfigGetAttribute");
  return value;
}

PartSums part_sums(uint32_t scheme) {
  switch (scheme) {
    case CUBLASLT_REDUCTION_SCHEME_NONE:
      return PartSums::kNone;
    case CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE:
      return PartSums::kInSumType;
    case CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE:
      return PartSums::kInResultType;
    default:
      return PartSums::kInResult;
  }
}

// What the library finds before it starts anything: of an algorithm, not of the device.
bool is_refusal(cublasStatus_t status) {
  return status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE ||
         status == CUBLAS_STATUS_ARCH_MISMATCH;
}

}  // namespace

void check_cublas(cublasStatus_t status, const char* call) {
  if (status != CUBLAS_STATUS_SUCCESS) {
    throw Error(ErrorClass::kInternal, str(call, ": ", cublasLtGetStatusString(status)));
  }
}

ProductAlgorithm ProductAlgorithm::from_kernel(const std::string& kernel) {
  cublasLtMatmulAlgo_t bytes{};
  from_hex(kernel, &bytes, sizeof(bytes));
  return ProductAlgorithm(bytes);
}

std::string ProductAlgorithm::kernel() const {
  return to_hex(&bytes_, sizeof(bytes_));
}

std::string ProductAlgorithm::text() const {
  const int parts = traits().parts;
  return str("algorithm ", config<int32_t>(bytes_, CUBLASLT_ALGO_CONFIG_ID), ", tile ",
             config<uint32_t>(bytes_, CUBLASLT_ALGO_CONFIG_TILE_ID), ", stages ",
             config<uint32_t>(bytes_, CUBLASLT_ALGO_CONFIG_STAGES_ID),
             parts > 1 ? str(", ", parts, " parts of K") : std::string());
}

AlgorithmTraits ProductAlgorithm::traits() const {
  return {config<int32_t>(bytes_, CUBLASLT_ALGO_CONFIG_SPLITK_NUM),
          part_sums(config<uint32_t>(bytes_, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME))};
}

ProductPlan::Layout ProductPlan::make_layout(const ColumnMajor& matrix, at::ScalarType type) {
  cublasLtMatrixLayout_t layout = nullptr;
  check_cublas(cublasLtMatrixLayoutCreate(&layout, cuda_type(type), static_cast<uint64_t>(matrix.rows),
                                          static_cast<uint64_t>(matrix.columns), matrix.leading()),
               "cublasLtMatrixLayoutCreate");
  return Layout(layout);
}

template <class Value>
void ProductPlan::set(cublasLtMatmulDescAttributes_t attribute, const Value& value) {
  check_cublas(cublasLtMatmulDescSetAttribute(description_.get(), attribute, &value, sizeof(value)),
               "cublasLtMatmulDescSetAttribute");
}

ProductPlan::ProductPlan(const ProductProblem& problem, cublasLtHandle_t handle, size_t workspace_bytes)
    : problem_(problem),
      product_(column_major(problem)),
      handle_(handle),
      workspace_bytes_(workspace_bytes),
      a_(make_layout(product_.a, problem.type)),
      b_(make_layout(product_.b, problem.type)),
      d_(make_layout(product_.d, problem.result)) {
  cublasLtMatmulDesc_t description = nullptr;
  check_cublas(cublasLtMatmulDescCreate(&description, compute_type(problem),
                                        problem.type == at::kDouble ? CUDA_R_64F : CUDA_R_32F),
               "cublasLtMatmulDescCreate");
  description_.reset(description);
  const int32_t transpose_a = product_.a.transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
  const int32_t transpose_b = product_.b.transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
  set(CUBLASLT_MATMUL_DESC_TRANSA, transpose_a);
  set(CUBLASLT_MATMUL_DESC_TRANSB, transpose_b);
  const auto end = static_cast<uint32_t>(epilogue(problem.extra));
  set(CUBLASLT_MATMUL_DESC_EPILOGUE, end);
  if (problem.extra != ProductExtra::kNone) {
    // Only its alignment is looked at before run().
    const auto address = static_cast<uintptr_t>(problem.alignment);
    set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, address);
  }
}

ProductPlan::Preference ProductPlan::make_preference() const {
  cublasLtMatmulPreference_t preference = nullptr;
  check_cublas(cublasLtMatmulPreferenceCreate(&preference), "cublasLtMatmulPreferenceCreate");
  Preference owned(preference);
  const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
    check_cublas(cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof(value)),
                 "cublasLtMatmulPreferenceSetAttribute");
  };
  const uint64_t workspace = workspace_bytes_;
  prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, workspace);
  // Those that are not as promised shall take no place among `most`.
  uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_NONE;
  for (const auto& [sums, scheme] : {std::pair{PartSums::kInSumType, CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE},
                                     {PartSums::kInResultType, CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE}}) {
    reductions |= is_as_promised(problem_, {2, sums}) ? scheme : CUBLASLT_REDUCTION_SCHEME_NONE;
  }
  prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, reductions);
  const auto alignment = static_cast<uint32_t>(problem_.alignment);
  for (const auto attribute :
       {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
    prefer(attribute, alignment);
  }
  return owned;
}

std::vector<ProductAlgorithm> ProductPlan::algorithms(int most) const {
  std::vector<cublasLtMatmulHeuristicResult_t> results(static_cast<size_t>(most));
  int found = 0;
  const Preference preference = make_preference();
  const auto status = cublasLtMatmulAlgoGetHeuristic(handle_, description_.get(), a_.get(), b_.get(), d_.get(),
                                                     d_.get(), preference.get(), most, results.data(), &found);
  if (status == CUBLAS_STATUS_NOT_SUPPORTED) {
    return {};
  }
  check_cublas(status, "cublasLtMatmulAlgoGetHeuristic");
  std::vector<ProductAlgorithm> algorithms;
  for (int i = 0; i < found; ++i) {
    const auto& result = results[static_cast<size_t>(i)];
    const ProductAlgorithm algorithm(result.algo);
    if (result.state == CUBLAS_STATUS_SUCCESS && is_as_promised(problem_, algorithm.traits()) && accepts(algorithm)) {
      algorithms.push_back(algorithm);
    }
  }
  return algorithms;
}

bool ProductPlan::accepts(const ProductAlgorithm& algorithm) const {
  cublasLtMatmulHeuristicResult_t result{};
  const auto status = cublasLtMatmulAlgoCheck(handle_, description_.get(), a_.get(), b_.get(), d_.get(), d_.get(),
                                              algorithm.get(), &result);
  return status == CUBLAS_STATUS_SUCCESS && result.workspaceSize <= workspace_bytes_;
}

bool ProductPlan::run(const ProductAlgorithm& algorithm, const ProductOperands& operands, void* workspace,
                      cudaStream_t stream) {
  if (problem_.extra != ProductExtra::kNone) {
    set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, operands.vector);
  }
  // In the type of the scale: double for fp64, float for all others.
  const double one = 1.0, zero = 0.0;
  const float one_float = 1.0f, zero_float = 0.0f;
  const bool is_double = problem_.type == at::kDouble;
  const void* const alpha = is_double ? static_cast<const void*>(&one) : &one_float;
  const void* const no_beta = is_double ? static_cast<const void*>(&zero) : &zero_float;
  const void* const beta = product_.accumulates ? alpha : no_beta;
  const cublasStatus_t status =
      cublasLtMatmul(handle_, description_.get(), alpha, operands.a, a_.get(), operands.b, b_.get(), beta, operands.d,
                     d_.get(), operands.d, d_.get(), algorithm.get(), workspace, workspace_bytes_, stream);
  if (is_refusal(status)) {
    return false;
  }
  check_cublas(status, "cublasLtMatmul");
  return true;
}

}  // namespace vit_hybrid::kernels
