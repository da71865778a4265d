// Names and column-major views of the products of a linear layer, and the rules for algorithms.
#include "src/kernels/gemm/product_problem.h"

#include <functional>

#include "src/base/text.h"

namespace vit_hybrid::kernels {

namespace {

const char* kind_name(ProductKind kind) {
  switch (kind) {
    case ProductKind::kForward:
      return "forward";
    case ProductKind::kBackwardInput:
      return "backward-input";
    case ProductKind::kWeightGradient:
      return "weight-gradient";
  }
  return "";
}

const char* extra_name(ProductExtra extra) {
  switch (extra) {
    case ProductExtra::kNone:
      return "";
    case ProductExtra::kBias:
      return "+bias";
    case ProductExtra::kBiasGradient:
      return "+bias-gradient";
  }
  return "";
}

std::string factor_name(const ProductProblem& problem) {
  return problem.type == at::kFloat && problem.fp32 == Fp32Products::kTf32 ? "tf32" : short_name(problem.type);
}

}  // namespace

bool may_fuse_bias_gradient(at::ScalarType gradient) {
  return gradient == at::kFloat || gradient == at::kDouble;
}

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
  return str(kind_name(kind), extra_name(extra), " R", rows, " M", outputs, " K", inputs, " ", factor_name(*this), ">",
             short_name(result), " ", alignment, "B");
}

ProductProblem ProductProblem::without_extra() const {
  ProductProblem plain = *this;
  plain.extra = ProductExtra::kNone;
  return plain;
}

double ProductProblem::flops() const {
  return 2.0 * static_cast<double>(rows) * static_cast<double>(outputs) * static_cast<double>(inputs);
}

size_t ProductProblemHash::operator()(const ProductProblem& problem) const {
  size_t hash = 0;
  for (const int64_t part :
       {static_cast<int64_t>(problem.kind), static_cast<int64_t>(problem.extra), problem.rows, problem.outputs,
        problem.inputs, static_cast<int64_t>(problem.type), static_cast<int64_t>(problem.result),
        static_cast<int64_t>(problem.fp32), static_cast<int64_t>(problem.alignment)}) {
    hash = hash * 1000003 + std::hash<int64_t>()(part);
  }
  return hash;
}

ProductProblem product_problem(ProductKind kind, ProductExtra extra, int64_t rows, int64_t outputs, int64_t inputs,
                               at::ScalarType type) {
  ProductProblem problem;
  problem.kind = kind;
  problem.extra = extra;
  problem.rows = rows;
  problem.outputs = outputs;
  problem.inputs = inputs;
  problem.type = type;
  problem.result = type;
  return problem;
}

ColumnMajorProduct column_major(const ProductProblem& problem) {
  using Factor = ColumnMajorProduct::Factor;
  // Row-major x [R, K] is column-major [K, R], and so on.
  const int64_t rows = problem.rows, outputs = problem.outputs, inputs = problem.inputs;
  switch (problem.kind) {
    case ProductKind::kForward:  // y^T [M, R] = W [M, K] x^T [K, R]
      return {Factor::kWeight,        Factor::kX, {inputs, outputs, true}, {inputs, rows, false},
              {outputs, rows, false}, false};
    case ProductKind::kBackwardInput:  // dx^T [K, R] = W^T [K, M] dy^T [M, R]
      return {Factor::kWeight,        Factor::kDy,           {inputs, outputs, false},
              {outputs, rows, false}, {inputs, rows, false}, false};
    case ProductKind::kWeightGradient:  // dW^T [K, M] += x^T [K, R] dy [R, M]
      return {Factor::kX, Factor::kDy, {inputs, rows, false}, {outputs, rows, true}, {inputs, outputs, false}, true};
  }
  return {};
}

namespace {

constexpr int kHopper = 90;

// Sums of parts in these types are as exact as in the type of sums.
bool is_as_wide_as_sums(at::ScalarType result) {
  return result == at::kFloat || result == at::kDouble;
}

}  // namespace

bool is_as_promised(const ProductProblem& problem, const AlgorithmTraits& algorithm) {
  const bool is_cut = algorithm.parts > 1 || algorithm.sums != PartSums::kNone;
  if (!is_cut) {
    return true;
  }
  const bool is_wide = is_as_wide_as_sums(problem.result);
  // In the result, blocks add in turn, but in which order the library does not say; tensor ranks that compute the same
  // weight's gradient must have the same bits, or their copies of it drift apart.
  if (algorithm.sums == PartSums::kInResult || (algorithm.sums == PartSums::kInResultType && !is_wide)) {
    return false;
  }
  // The step that adds the parts up rounds to the result's type, and the bias is added to what came out: two roundings
  // in half precision.
  return problem.extra != ProductExtra::kBias || is_wide;
}

size_t product_workspace_bytes(int capability) {
  return size_t{capability >= kHopper ? 64U : 32U} << 20;
}

}  // namespace vit_hybrid::kernels
