// Names and column-major views of the products of a linear layer.
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

}  // namespace vit_hybrid::kernels
