// Descriptions of products in cuBLASLt's terms, their measuring, and the plans of each GPU.
#include "src/kernels/gemm/cublaslt.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mm.h>
#include <c10/cuda/CUDAGuard.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "src/base/error.h"
#include "src/base/memory_tracker.h"
#include "src/base/text.h"
#include "src/kernels/gelu.h"
#include "src/kernels/gemm/epilogue.h"
#include "src/kernels/gemm/kernel_choice.h"

namespace vit_hybrid::kernels {

namespace {

constexpr int kMostAlgorithms = 32;  // that are asked for, and tried where kernels are measured

void check_cublas(cublasStatus_t status, const char* call) {
  if (status != CUBLAS_STATUS_SUCCESS) {
    throw Error(ErrorClass::kInternal, str(call, ": ", cublasLtGetStatusString(status)));
  }
}

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
    case ProductExtra::kBias:
      return CUBLASLT_EPILOGUE_BIAS;
    case ProductExtra::kBiasGradient:
      return CUBLASLT_EPILOGUE_BGRADB;
    case ProductExtra::kBiasGelu:
      return CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
    case ProductExtra::kGeluGradient:
      return CUBLASLT_EPILOGUE_DGELU;
    default:
      return CUBLASLT_EPILOGUE_DEFAULT;
  }
}

bool has_vector(ProductExtra extra) {
  return extra != ProductExtra::kNone && extra != ProductExtra::kGeluGradient;
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

// What the library finds before it starts anything: of a problem (fp64 with a bias gradient or GELU, addresses of 2
// bytes, GELU's input in rows of no multiple of 8) or an algorithm, not of the device.
bool is_refusal(cublasStatus_t status) {
  return status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE ||
         status == CUBLAS_STATUS_ARCH_MISMATCH;
}

struct AllDevices {
  std::mutex mutex;
  std::map<c10::DeviceIndex, std::unique_ptr<DeviceProducts>> products;
};

// Never destroyed: at the end of the process the driver may be gone before static objects are.
AllDevices& all_devices() {
  static auto* const devices = new AllDevices();
  return *devices;
}

// A choice of rank 0, or of an earlier start of the run.
[[noreturn]] void refuse_choice(const ProductProblem& problem) {
  throw Error(ErrorClass::kInternal,
              str("the kernel chosen for ", problem.name(), " (", kernel_table().find(problem.name())->text,
                  ") does not run on this GPU"),
              "start all ranks on GPUs of one kind, and give --retune");
}

// With random values: what a GPU can do depends on the bits that it moves.
ProductOperands random_operands(const ProductProblem& problem, c10::Device device) {
  const MemoryScope scope(MemoryClass::kWorkspaces);
  const ColumnMajorProduct product = column_major(problem);
  const auto random = [&](at::IntArrayRef shape, at::ScalarType type) {
    return at::empty(shape, at::TensorOptions(type).device(device)).normal_();
  };
  const auto matrix = [&](const ColumnMajor& shape, at::ScalarType type) {
    return random({shape.columns, shape.rows}, type);
  };
  // Of GELU's backward the vector is the bias gradient of the layer before.
  const int64_t length = problem.extra == ProductExtra::kGeluGradient ? problem.inputs : problem.outputs;
  return {matrix(product.a, problem.type), matrix(product.b, problem.type), matrix(product.d, problem.result),
          random({length}, problem.result), problem.has_gelu() ? matrix(product.d, problem.result) : at::Tensor()};
}

// The fastest algorithm that is offered; without a kernel where there is none, or the options do not allow it.
KernelChoice measure_algorithms(const ProductProblem& problem, const ProductOperands& operands, c10::Device device) {
  DeviceProducts& products = DeviceProducts::of(device);
  ProductPlan plan = products.plan(problem);
  const std::vector<ProductAlgorithm> algorithms = plan.algorithms(kMostAlgorithms);
  const at::Tensor gradient = at::empty_like(operands.vector).zero_();
  const auto [fastest, least] = fastest_candidate(algorithms.size(), [&](size_t number, Effort effort) {
    bool ran = true;
    const double microseconds = device_microseconds(
        [&] {
          ran = products.run(plan, algorithms[number], operands) && ran;
          if (problem.extra == ProductExtra::kBiasGradient) {
            gradient.add_(operands.vector);
          } else if (problem.extra == ProductExtra::kGeluGradient) {
            device_add_column_sums(gradient, operands.d);  // which GELU's own kernel has in its pass
          }
        },
        effort);
    return ran ? microseconds : kNever;
  });
  // How a fused bias gradient is added up the library does not say.
  const bool is_allowed =
      device_kernel_options().order == SumOrder::kAny || problem.extra != ProductExtra::kBiasGradient;
  if (least == kNever || !is_allowed) {
    return {"", "", kNever, least};
  }
  return {algorithms[fastest].kernel(), algorithms[fastest].text(), least, least};
}

// What device_products.h falls back to. In memory, a and b are the transposes of the column-major factors.
double measure_libtorch(const ProductProblem& problem, const ProductOperands& operands) {
  const ColumnMajorProduct product = column_major(problem);
  const at::Tensor left = product.b.transposed ? operands.b.t() : operands.b;
  const at::Tensor right = product.a.transposed ? operands.a.t() : operands.a;
  return device_microseconds([&] {
    const at::Tensor result = at::mm(left, right);
    if (product.accumulates) {
      operands.d.add_(result);
    }
  });
}

// The extra as a kernel of its own.
double measure_extra(const ProductProblem& problem, const ProductOperands& operands) {
  return device_microseconds([&] {
    switch (problem.extra) {
      case ProductExtra::kBias:
        operands.d.add_(operands.vector);
        break;
      case ProductExtra::kBiasGelu:
        device_gelu(operands.d, GeluKind::kTanh);
        break;
      case ProductExtra::kGeluGradient:
        device_gelu_backward(operands.d, operands.pre_activation, GeluKind::kTanh, operands.vector);
        break;
      default:
        device_add_column_sums(operands.vector, operands.b);
    }
  });
}

// The choice of the product without its extra, measured if it was not.
KernelChoice plain_choice(const ProductProblem& problem, c10::Device device) {
  const ProductProblem plain = problem.without_extra();
  if (kernel_table().find(plain.name()) == nullptr) {
    measure_product(plain, device);
  }
  return *kernel_table().find(plain.name());
}

void* address_of(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.data_ptr() : nullptr;
}

}  // namespace

ProductAlgorithm ProductAlgorithm::from_kernel(const std::string& kernel) {
  ProductAlgorithm algorithm{};
  from_hex(kernel, &algorithm.bytes, sizeof(algorithm.bytes));
  return algorithm;
}

std::string ProductAlgorithm::kernel() const {
  return to_hex(&bytes, sizeof(bytes));
}

std::string ProductAlgorithm::text() const {
  const int parts = traits().parts;
  return str("algorithm ", config<int32_t>(bytes, CUBLASLT_ALGO_CONFIG_ID), ", tile ",
             config<uint32_t>(bytes, CUBLASLT_ALGO_CONFIG_TILE_ID), ", stages ",
             config<uint32_t>(bytes, CUBLASLT_ALGO_CONFIG_STAGES_ID),
             parts > 1 ? str(", ", parts, " parts of K") : std::string());
}

AlgorithmTraits ProductAlgorithm::traits() const {
  return {config<int32_t>(bytes, CUBLASLT_ALGO_CONFIG_SPLITK_NUM),
          part_sums(config<uint32_t>(bytes, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME))};
}

int ProductOperands::alignment() const {
  int alignment = ProductProblem().alignment;
  for (const at::Tensor* const tensor : {&a, &b, &d, &vector, &pre_activation}) {
    while (reinterpret_cast<uintptr_t>(address_of(*tensor)) % alignment != 0) {
      alignment /= 2;
    }
  }
  return alignment;
}

ProductPlan::Layout ProductPlan::make_layout(const ColumnMajor& matrix, at::ScalarType type) {
  cublasLtMatrixLayout_t layout = nullptr;
  check_cublas(cublasLtMatrixLayoutCreate(&layout, cuda_type(type), static_cast<uint64_t>(matrix.rows),
                                          static_cast<uint64_t>(matrix.columns), matrix.rows),
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
  // Of addresses only the alignment is looked at before run().
  const auto address = static_cast<uintptr_t>(problem.alignment);
  if (has_vector(problem.extra)) {
    set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, address);
  }
  if (problem.has_gelu()) {
    set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, address);
    set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, product_.d.rows);
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
  if (is_refusal(status)) {
    return {};
  }
  check_cublas(status, "cublasLtMatmulAlgoGetHeuristic");
  std::vector<ProductAlgorithm> algorithms;
  for (int i = 0; i < found; ++i) {
    const auto& result = results[static_cast<size_t>(i)];
    const ProductAlgorithm algorithm{result.algo};
    if (result.state == CUBLAS_STATUS_SUCCESS && is_as_promised(problem_, algorithm.traits()) && accepts(algorithm)) {
      algorithms.push_back(algorithm);
    }
  }
  return algorithms;
}

bool ProductPlan::accepts(const ProductAlgorithm& algorithm) const {
  cublasLtMatmulHeuristicResult_t result{};
  const auto status = cublasLtMatmulAlgoCheck(handle_, description_.get(), a_.get(), b_.get(), d_.get(), d_.get(),
                                              &algorithm.bytes, &result);
  return status == CUBLAS_STATUS_SUCCESS && result.workspaceSize <= workspace_bytes_;
}

bool ProductPlan::run(const ProductAlgorithm& algorithm, const ProductOperands& operands, void* workspace,
                      cudaStream_t stream) {
  if (has_vector(problem_.extra)) {
    set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, address_of(operands.vector));
  }
  if (problem_.has_gelu()) {
    set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, address_of(operands.pre_activation));
  }
  // In the type of the scale: double for fp64, float for all others.
  const double one = 1.0, zero = 0.0;
  const float one_float = 1.0f, zero_float = 0.0f;
  const bool is_double = problem_.type == at::kDouble;
  const void* const alpha = is_double ? static_cast<const void*>(&one) : &one_float;
  const void* const no_beta = is_double ? static_cast<const void*>(&zero) : &zero_float;
  const void* const beta = product_.accumulates ? alpha : no_beta;
  void* const d = address_of(operands.d);
  const cublasStatus_t status =
      cublasLtMatmul(handle_, description_.get(), alpha, address_of(operands.a), a_.get(), address_of(operands.b),
                     b_.get(), beta, d, d_.get(), d, d_.get(), &algorithm.bytes, workspace, workspace_bytes_, stream);
  if (is_refusal(status)) {
    return false;
  }
  check_cublas(status, "cublasLtMatmul");
  return true;
}

DeviceProducts& DeviceProducts::of(c10::Device device) {
  AllDevices& devices = all_devices();
  const std::lock_guard lock(devices.mutex);
  auto& products = devices.products[device.index()];
  if (products == nullptr) {
    products = std::make_unique<DeviceProducts>(device);
  }
  return *products;
}

void forget_product_plans() {
  AllDevices& devices = all_devices();
  const std::lock_guard lock(devices.mutex);
  for (const auto& [index, products] : devices.products) {
    products->forget_plans();
  }
}

DeviceProducts::DeviceProducts(c10::Device device)
    : workspace_bytes_(product_workspace_bytes(device_traits(device).capability)) {
  check_cublas(cublasLtCreate(&handle_), "cublasLtCreate");
}

bool DeviceProducts::run(ProductProblem problem, const ProductOperands& operands) {
  problem.alignment = operands.alignment();
  const std::lock_guard lock(mutex_);
  Ready& product = ready(problem);
  const auto stream = c10::cuda::getCurrentCUDAStream();
  while (!product.algorithms.empty()) {
    if (product.plan.run(product.algorithms.front(), operands, workspace(stream), stream.stream())) {
      return true;
    }
    if (product.is_measured) {
      refuse_choice(problem);
    }
    product.algorithms.erase(product.algorithms.begin());
  }
  return false;
}

bool DeviceProducts::run(ProductPlan& plan, const ProductAlgorithm& algorithm, const ProductOperands& operands) {
  const std::lock_guard lock(mutex_);
  const auto stream = c10::cuda::getCurrentCUDAStream();
  return plan.run(algorithm, operands, workspace(stream), stream.stream());
}

bool DeviceProducts::has_kernel(ProductProblem problem, const ProductOperands& operands) {
  problem.alignment = operands.alignment();
  const std::lock_guard lock(mutex_);
  return !ready(problem).algorithms.empty();
}

void DeviceProducts::forget_plans() {
  const std::lock_guard lock(mutex_);
  products_.clear();
}

std::vector<std::string> DeviceProducts::unmeasured() {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> names;
  for (const auto& [problem, product] : products_) {
    if (!product.is_measured) {
      names.push_back(problem.name());
    }
  }
  std::sort(names.begin(), names.end());
  return names;
}

DeviceProducts::Ready& DeviceProducts::ready(const ProductProblem& problem) {
  const auto found = products_.find(problem);
  return found != products_.end() ? found->second : products_.emplace(problem, prepare(problem)).first->second;
}

DeviceProducts::Ready DeviceProducts::prepare(const ProductProblem& problem) {
  Ready product{plan(problem), {}, false};
  if (const KernelChoice* const choice = kernel_table().find(problem.name())) {
    product.is_measured = true;
    if (choice->kernel == kApart) {
      return product;
    }
    product.algorithms = {ProductAlgorithm::from_kernel(choice->kernel)};
    if (!product.plan.accepts(product.algorithms.front())) {
      refuse_choice(problem);
    }
    return product;
  }
  if (problem.extra == ProductExtra::kBiasGradient || problem.has_gelu()) {
    return product;  // fused only where that was measured to be faster: it often is not
  }
  product.algorithms = product.plan.algorithms(kMostAlgorithms);
  return product;
}

void* DeviceProducts::workspace(const c10::cuda::CUDAStream& stream) {
  at::Tensor& memory = workspaces_[stream.id()];
  if (!memory.defined()) {
    const MemoryScope scope(MemoryClass::kWorkspaces);
    memory = at::empty({static_cast<int64_t>(workspace_bytes_)}, at::TensorOptions(at::kByte).device(stream.device()));
  }
  return memory.mutable_data_ptr();
}

void measure_product(const ProductProblem& problem, c10::Device device) {
  VH_ASSERT(problem.rows > 0 && problem.outputs > 0 && problem.inputs > 0, problem.name());
  const c10::cuda::CUDAGuard guard(device);
  const ProductOperands operands = random_operands(problem, device);
  KernelChoice choice = measure_algorithms(problem, operands, device);
  const bool is_fused = !choice.kernel.empty();
  // A bias that is added by a kernel of its own is added to what was rounded before: only where nothing else is
  // offered.
  if (problem.extra == ProductExtra::kBiasGradient || problem.has_gelu() ||
      (problem.extra == ProductExtra::kBias && !is_fused)) {
    const KernelChoice plain = plain_choice(problem, device);
    const double extra = measure_extra(problem, operands);
    choice.fastest = std::min(choice.fastest, plain.fastest + extra);
    if (plain.microseconds + extra < choice.microseconds) {
      choice = {kApart, "two kernels", plain.microseconds + extra, choice.fastest};
    }
  } else if (!is_fused) {
    const double libtorch = measure_libtorch(problem, operands);
    choice = {kApart, "LibTorch's product", libtorch, libtorch};
  }
  kernel_table().choices[problem.name()] = choice;
}

}  // namespace vit_hybrid::kernels
