// Which algorithms of cuBLASLt a plan takes, what it asks for, and what is made of one that does not run.
#include <doctest/doctest.h>

#include <vector>

#include "src/kernels/gemm/cublaslt.h"
#include "tests/src/kernels/gemm/fake_cublaslt.h"
#include "tests/support/contains.h"
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
    ids.push_back(fake_cublaslt().algorithms.at(algorithm.get()->data[0]).id);
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
  const auto run = [&](size_t number) { return plan.run(offered[number], {}, nullptr, nullptr); };
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
