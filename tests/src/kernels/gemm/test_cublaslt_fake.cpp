// Which algorithms of cuBLASLt a plan takes, what it asks for, and what is made of one that does not run.
#include <ATen/TensorOperators.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/gelu_backward.h>
#include <ATen/ops/mm.h>
#include <doctest/doctest.h>

#include <utility>
#include <vector>

#include "src/kernels/gemm/cublaslt.h"
#include "tests/src/kernels/gemm/fake_cublaslt.h"
#include "tests/support/compare.h"
#include "tests/support/contains.h"
#include "tests/support/kernel_arrays.h"
#include "tests/support/thrown_error.h"

using namespace vit_hybrid;
using namespace vit_hybrid::testing;
using kernels::ProductExtra;
using kernels::ProductKind;
using kernels::ProductPlan;

namespace {

constexpr size_t kWorkspace = 1 << 20;
constexpr uint32_t kInSumType = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
constexpr uint32_t kInResultType = CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE;

ProductPlan plan_of(ProductKind kind, ProductExtra extra, at::ScalarType type, at::ScalarType result) {
  auto problem = kernels::product_problem(kind, extra, 64, 32, 16, type);
  problem.result = result;
  return {problem, nullptr, kWorkspace};
}

ProductPlan half_plan(ProductExtra extra = ProductExtra::kNone) {
  return plan_of(ProductKind::kForward, extra, at::kHalf, at::kHalf);
}

ProductPlan gradient_plan() {
  return plan_of(ProductKind::kWeightGradient, ProductExtra::kNone, at::kHalf, at::kFloat);
}

// With ids in their order.
void offer(std::vector<FakeAlgorithm> algorithms) {
  fake_cublaslt() = {};
  for (size_t i = 0; i < algorithms.size(); ++i) {
    algorithms[i].id = static_cast<int32_t>(i);
  }
  fake_cublaslt().algorithms = std::move(algorithms);
}

std::vector<int> taken(const ProductPlan& plan, int most = 32) {
  std::vector<int> ids;
  for (const auto& algorithm : plan.algorithms(most)) {
    ids.push_back(fake_cublaslt().algorithms.at(algorithm.bytes.data[0]).id);
  }
  return ids;
}

using Ids = std::vector<int>;

}  // namespace

TEST_CASE("product plan: algorithms that the device does not accept are passed over") {
  offer(std::vector<FakeAlgorithm>(5));
  fake_cublaslt().algorithms[0].checked = CUBLAS_STATUS_NOT_SUPPORTED;
  fake_cublaslt().algorithms[2].offered = CUBLAS_STATUS_INVALID_VALUE;
  fake_cublaslt().algorithms[3].workspace = kWorkspace + 1;
  fake_cublaslt().algorithms[4].workspace = kWorkspace;
  CHECK(taken(half_plan()) == Ids{1, 4});
  CHECK(taken(half_plan(), 2) == Ids{1});
  CHECK(fake_cublaslt().requested == 2);
  for (const auto refusal : {CUBLAS_STATUS_NOT_SUPPORTED, CUBLAS_STATUS_INVALID_VALUE, CUBLAS_STATUS_ARCH_MISMATCH}) {
    fake_cublaslt().heuristic = refusal;
    CHECK(taken(half_plan()).empty());
  }
  fake_cublaslt().heuristic = CUBLAS_STATUS_EXECUTION_FAILED;
  const auto error = thrown_error([] { static_cast<void>(taken(half_plan())); });
  CHECK(error.message() == "cublasLtMatmulAlgoGetHeuristic: fake: execution failed");
  CHECK(fake_cublaslt().num_objects == 0);
}

TEST_CASE("product plan: parts of the inner dimension are added up as promised") {
  offer({{0, 2, kInSumType},
         {0, 2, kInResultType},
         {0, 2, CUBLASLT_REDUCTION_SCHEME_INPLACE},
         {0, 1, CUBLASLT_REDUCTION_SCHEME_NONE}});
  CHECK(taken(half_plan()) == Ids{0, 3});
  CHECK(fake_cublaslt().preferences[CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK] == kInSumType);
  CHECK(taken(half_plan(ProductExtra::kBias)) == Ids{3});
  CHECK(fake_cublaslt().preferences[CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK] == CUBLASLT_REDUCTION_SCHEME_NONE);
  CHECK(taken(gradient_plan()) == Ids{0, 1, 3});
  CHECK(fake_cublaslt().preferences[CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK] == (kInSumType | kInResultType));
  CHECK(fake_cublaslt().preferences[CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES] == kWorkspace);
}

TEST_CASE("product plan: an algorithm that is refused when it is to run is no error, a failure is one") {
  offer(std::vector<FakeAlgorithm>(5));
  auto& algorithms = fake_cublaslt().algorithms;
  algorithms[1].run = CUBLAS_STATUS_NOT_SUPPORTED;
  algorithms[2].run = CUBLAS_STATUS_INVALID_VALUE;
  algorithms[3].run = CUBLAS_STATUS_ARCH_MISMATCH;
  algorithms[4].run = CUBLAS_STATUS_EXECUTION_FAILED;
  auto plan = half_plan(ProductExtra::kBias);
  const auto offered = plan.algorithms(5);
  REQUIRE(offered.size() == 5);
  const at::Tensor bias = normals({32}, 1, at::kHalf);
  const auto run = [&](size_t number) { return plan.run(offered[number], {{}, {}, {}, bias}, nullptr, nullptr); };
  CHECK(run(0));
  CHECK(fake_cublaslt().beta == 0.0);
  CHECK(fake_cublaslt().workspace == kWorkspace);
  CHECK_FALSE(run(1));
  CHECK_FALSE(run(2));
  CHECK_FALSE(run(3));
  const auto error = thrown_error([&] { static_cast<void>(run(4)); });
  CHECK(error.error_class() == ErrorClass::kInternal);
  CHECK(contains(error.message(), "cublasLtMatmul: fake: execution failed"));
  CHECK(fake_cublaslt().runs == std::vector<int32_t>{0, 1, 2, 3, 4});
  auto gradient = gradient_plan();
  CHECK(gradient.run(offered[0], {}, nullptr, nullptr));
  CHECK(fake_cublaslt().beta == 1.0);  // it adds to what is there
}

TEST_CASE("product plan: an algorithm is asked for again by its bytes, and says what it is") {
  offer({{7, 1}, {7, 4, kInSumType}});
  fake_cublaslt().algorithms[1].id = 66;
  const auto algorithms = half_plan().algorithms(2);
  REQUIRE(algorithms.size() == 2);
  CHECK(kernels::ProductAlgorithm::from_kernel(algorithms[1].kernel()).text() ==
        "algorithm 66, tile 0, stages 0, 4 parts of K");
  CHECK(algorithms[0].text() == "algorithm 0, tile 0, stages 0");
  CHECK(algorithms[1].kernel().size() == 2 * sizeof(cublasLtMatmulAlgo_t));
}

TEST_CASE("product plan: what it describes is the product of the layer, in every type, with what goes with it") {
  constexpr int64_t kRows = 7, kOutputs = 5, kInputs = 3;
  for (const auto& [type, gradient_type] : {std::pair{at::kDouble, at::kDouble},
                                            {at::kFloat, at::kFloat},
                                            {at::kHalf, at::kFloat},
                                            {at::kHalf, at::kHalf},
                                            {at::kBFloat16, at::kFloat},
                                            {at::kBFloat16, at::kBFloat16}}) {
    CAPTURE(c10::toString(type));
    offer(std::vector<FakeAlgorithm>(1));
    fake_cublaslt().computes = true;
    const auto draw = [](at::IntArrayRef shape, uint64_t key, at::ScalarType of) { return normals(shape, key, of); };
    const at::Tensor x = draw({kRows, kInputs}, 1, type), weight = draw({kOutputs, kInputs}, 2, type);
    const at::Tensor dy = draw({kRows, kOutputs}, 3, type), bias = draw({kOutputs}, 4, type);
    const auto in_double = [](const at::Tensor& t) { return t.to(at::kDouble); };
    const auto run = [&](ProductKind kind, ProductExtra extra, const at::Tensor& a, const at::Tensor& b,
                         const at::Tensor& d, const at::Tensor& vector) {
      auto problem = kernels::product_problem(kind, extra, kRows, kOutputs, kInputs, type);
      problem.result = d.scalar_type();
      ProductPlan plan(problem, nullptr, kWorkspace);
      const auto offered = plan.algorithms(1);
      return !offered.empty() && plan.run(offered[0], {a, b, d, vector}, nullptr, nullptr);
    };
    const double bound = type == at::kDouble ? 1e-14 : type == at::kFloat ? 1e-6 : type == at::kHalf ? 1e-3 : 8e-3;
    const at::Tensor y = unwritten(draw({kRows, kOutputs}, 5, type), type), dx = unwritten(x, type);
    REQUIRE(run(ProductKind::kForward, ProductExtra::kBias, weight, x, y, bias));
    CHECK(relative_error(y, at::mm(in_double(x), in_double(weight).t()) + in_double(bias)) <= bound);
    REQUIRE(run(ProductKind::kBackwardInput, ProductExtra::kNone, weight, dy, dx, {}));
    CHECK(relative_error(dx, at::mm(in_double(dy), in_double(weight))) <= bound);
    const at::Tensor before = draw({kOutputs, kInputs}, 6, gradient_type), gradient = before.clone();
    const at::Tensor sums = unwritten(draw({kOutputs}, 7, gradient_type), gradient_type);
    const bool is_fused = run(ProductKind::kWeightGradient, ProductExtra::kBiasGradient, x, dy, gradient, sums);
    CHECK(is_fused == (type != at::kDouble));  // which the library refuses
    if (!is_fused) REQUIRE(run(ProductKind::kWeightGradient, ProductExtra::kNone, x, dy, gradient, {}));
    const double gradient_bound = gradient_type == type ? bound : 1e-6;
    CHECK(relative_error(gradient, in_double(before) + at::mm(in_double(dy).t(), in_double(x))) <= gradient_bound);
    if (is_fused) CHECK(relative_error(sums, in_double(dy).sum(0)) <= gradient_bound);
  }
  CHECK(fake_cublaslt().num_objects == 0);
}

TEST_CASE("product plan: GELU with tanh at the end of fc1's product, and its slope at the end of fc2's backward") {
  constexpr int64_t kRows = 7, kHidden = 16, kDim = 5;
  for (const auto type : {at::kFloat, at::kHalf, at::kBFloat16, at::kDouble}) {
    CAPTURE(c10::toString(type));
    offer(std::vector<FakeAlgorithm>(1));
    fake_cublaslt().computes = true;
    const auto in_double = [](const at::Tensor& t) { return t.to(at::kDouble); };
    const at::Tensor x = normals({kRows, kDim}, 1, type), weight = normals({kHidden, kDim}, 2, type);
    const at::Tensor bias = normals({kHidden}, 3, type), dy = normals({kRows, kDim}, 4, type);
    const at::Tensor next = normals({kDim, kHidden}, 5, type);  // fc2's weight
    const at::Tensor y = unwritten(normals({kRows, kHidden}, 6, type), type), z = unwritten(y, type);
    const at::Tensor dz = unwritten(y, type);
    ProductPlan forward(
        kernels::product_problem(ProductKind::kForward, ProductExtra::kBiasGelu, kRows, kHidden, kDim, type), nullptr,
        kWorkspace);
    ProductPlan backward(
        kernels::product_problem(ProductKind::kBackwardInput, ProductExtra::kGeluGradient, kRows, kDim, kHidden, type),
        nullptr, kWorkspace);
    const auto of_forward = forward.algorithms(1), of_backward = backward.algorithms(1);
    CHECK(of_forward.size() == (type == at::kDouble ? 0 : 1));  // the library has neither in fp64
    CHECK(of_backward.size() == of_forward.size());
    if (of_forward.empty()) {
      continue;
    }
    REQUIRE(forward.run(of_forward[0], {weight, x, y, bias, z}, nullptr, nullptr));
    const double bound = type == at::kFloat ? 1e-6 : type == at::kHalf ? 1e-3 : 8e-3;
    const at::Tensor exact = at::mm(in_double(x), in_double(weight).t()) + in_double(bias);
    CHECK(relative_error(z, exact) <= bound);
    CHECK(relative_error(y, at::gelu(exact, "tanh")) <= bound);
    REQUIRE(backward.run(of_backward[0], {next, dy, dz, {}, z}, nullptr, nullptr));
    const at::Tensor dh = at::mm(in_double(dy), in_double(next));
    CHECK(relative_error(dz, at::gelu_backward(dh, in_double(z), "tanh")) <= bound);
  }
  CHECK(fake_cublaslt().num_objects == 0);
}

TEST_CASE("product plan: GELU's input in rows of no multiple of 8, or at an odd address, is refused, and no error") {
  offer(std::vector<FakeAlgorithm>(1));
  fake_cublaslt().computes = true;
  const auto offered = [](ProductKind kind, ProductExtra extra, int64_t hidden, int alignment) {
    const bool is_forward = kind == ProductKind::kForward;
    auto problem =
        kernels::product_problem(kind, extra, 4, is_forward ? hidden : 4, is_forward ? 4 : hidden, at::kHalf);
    problem.alignment = alignment;
    return ProductPlan(problem, nullptr, kWorkspace).algorithms(1).size();
  };
  for (const auto& [kind, extra] : {std::pair{ProductKind::kForward, ProductExtra::kBiasGelu},
                                    {ProductKind::kBackwardInput, ProductExtra::kGeluGradient}}) {
    CHECK(offered(kind, extra, 24, 16) == 1);
    CHECK(offered(kind, extra, 20, 16) == 0);
    CHECK(offered(kind, extra, 24, 8) == 0);
  }
}

TEST_CASE("product plan: a bias at an address of two bytes is refused, and no error") {
  offer(std::vector<FakeAlgorithm>(1));
  fake_cublaslt().computes = true;
  auto problem = kernels::product_problem(ProductKind::kForward, ProductExtra::kBias, 4, 4, 4, at::kHalf);
  problem.alignment = 2;
  CHECK(ProductPlan(problem, nullptr, kWorkspace).algorithms(1).empty());
  problem.alignment = 4;
  CHECK(ProductPlan(problem, nullptr, kWorkspace).algorithms(1).size() == 1);
}
