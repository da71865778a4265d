// Names and column-major views of products, the rules for algorithms, and the options of the process.
#include "src/kernels/gemm/device_products.h"

#include <ATen/Context.h>

#include <array>
#include <cstdlib>

#include "src/base/text.h"
#include "src/base/version.h"

namespace vit_hybrid::kernels {

namespace {

constexpr int kHopper = 90;
constexpr std::array kKindNames = {"forward", "backward-input", "weight-gradient"};
constexpr std::array kExtraNames = {"", "+bias", "+bias-gradient", "+bias+gelu", "+gelu-gradient"};

DeviceKernelOptions& options_of_process() {
  static DeviceKernelOptions options;
  return options;
}

}  // namespace

std::string short_name(at::ScalarType type) {
  switch (type) {
    case at::kDouble:
      return "fp64";
    case at::kFloat:
      return "fp32";
    case at::kBFloat16:
      return "bf16";
    case at::kHalf:
      return "fp16";
    default:
      return c10::toString(type);
  }
}

std::string ProductProblem::name() const {
  const bool is_tf32 = type == at::kFloat && fp32 == Fp32Products::kTf32;
  return str(kKindNames.at(static_cast<size_t>(kind)), kExtraNames.at(static_cast<size_t>(extra)), " R", rows, " M",
             outputs, " K", inputs, " ", is_tf32 ? "tf32" : short_name(type), ">", short_name(result), " ", alignment,
             "B");
}

ProductProblem ProductProblem::without_extra() const {
  ProductProblem plain = *this;
  plain.extra = extra == ProductExtra::kBiasGelu ? ProductExtra::kBias : ProductExtra::kNone;
  return plain;
}

double ProductProblem::flops() const {
  return 2.0 * static_cast<double>(rows) * static_cast<double>(outputs) * static_cast<double>(inputs);
}

ProductProblem product_problem(ProductKind kind, ProductExtra extra, int64_t rows, int64_t outputs, int64_t inputs,
                               at::ScalarType type, Fp32Products fp32) {
  return {kind, extra, rows, outputs, inputs, type, type, type == at::kFloat ? fp32 : Fp32Products::kExact};
}

ColumnMajorProduct column_major(const ProductProblem& problem) {
  // Row-major x [R, K] is column-major [K, R], and so on.
  const int64_t rows = problem.rows, outputs = problem.outputs, inputs = problem.inputs;
  switch (problem.kind) {
    case ProductKind::kForward:  // y^T [M, R] = W [M, K] x^T [K, R]
      return {{inputs, outputs, true}, {inputs, rows, false}, {outputs, rows, false}, false};
    case ProductKind::kBackwardInput:  // dx^T [K, R] = W^T [K, M] dy^T [M, R]
      return {{inputs, outputs, false}, {outputs, rows, false}, {inputs, rows, false}, false};
    case ProductKind::kWeightGradient:  // dW^T [K, M] += x^T [K, R] dy [R, M]
      return {{inputs, rows, false}, {outputs, rows, true}, {inputs, outputs, false}, true};
  }
  return {};
}

bool is_as_wide_as_sums(at::ScalarType type) {
  return type == at::kFloat || type == at::kDouble;
}

bool may_fuse_gelu(GeluKind kind, at::ScalarType type, Fp32Products fp32) {
  const bool is_tf32 = type == at::kFloat && fp32 == Fp32Products::kTf32;
  return kind == GeluKind::kTanh && (is_tf32 || type == at::kBFloat16 || type == at::kHalf);
}

bool is_as_promised(const ProductProblem& problem, const AlgorithmTraits& algorithm) {
  if (algorithm.parts <= 1 && algorithm.sums == PartSums::kNone) {
    return true;
  }
  const bool is_wide = is_as_wide_as_sums(problem.result);
  // In the result, blocks add in turn, but in which order the library does not say; tensor ranks that compute the same
  // weight's gradient must have the same bits, or their copies of it drift apart.
  if (algorithm.sums == PartSums::kInResult || (algorithm.sums == PartSums::kInResultType && !is_wide)) {
    return false;
  }
  // The step that adds the parts up rounds to the result's type, and the bias is added to what came out, or GELU
  // applied: two roundings in half precision.
  return (problem.extra != ProductExtra::kBias && !problem.has_gelu()) || is_wide;
}

size_t product_workspace_bytes(int capability) {
  return size_t{capability >= kHopper ? 64U : 32U} << 20;
}

void set_device_kernel_options(const DeviceKernelOptions& options) {
  options_of_process() = options;
  // Its own defaults allow TF32 in cuDNN and half-precision sums in cuBLAS; TORCH_ALLOW_TF32_CUBLAS_OVERRIDE allows
  // TF32 in cuBLAS too.
  at::Context& libtorch = at::globalContext();
  libtorch.setAllowTF32CuBLAS(options.fp32 == Fp32Products::kTf32);
  libtorch.setAllowTF32CuDNN(options.fp32 == Fp32Products::kTf32);
  libtorch.setAllowFP16ReductionCuBLAS(false);
  libtorch.setAllowBF16ReductionCuBLAS(false);
  if (options.order == SumOrder::kFixed) {
    // cuBLAS promises equal bits only where its workspaces are fixed; 8 of 4 MiB is what its manual names.
    setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", 0);
  }
}

const DeviceKernelOptions& device_kernel_options() {
  return options_of_process();
}

// The workspace is part of it because algorithms are offered that fit into it.
std::string machine_text(const DeviceTraits& traits, SumOrder order) {
  return str(traits.name, " (sm_", traits.capability, ", ", traits.multiprocessors, " multiprocessors), cuBLASLt ",
             traits.cublaslt_version, ", cuDNN ", traits.cudnn_version, ", LibTorch ",
             library_versions().front().second, ", sums in ", order == SumOrder::kFixed ? "a fixed" : "any",
             " order, products in ", product_workspace_bytes(traits.capability) >> 20, " MiB");
}

}  // namespace vit_hybrid::kernels
