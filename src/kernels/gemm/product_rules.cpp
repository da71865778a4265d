// The rules.
#include "src/kernels/gemm/product_rules.h"

namespace vit_hybrid::kernels {

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
