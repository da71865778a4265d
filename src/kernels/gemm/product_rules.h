// Which of a library's algorithms compute a product as it is promised: sums in fp32 in a fixed order, rounded once.
#pragma once

#include <cstddef>

#include "src/kernels/gemm/product_problem.h"

namespace vit_hybrid::kernels {

/// Where an algorithm that cuts the inner dimension into parts adds their sums up: in the result itself, one block
/// after the other; or from a workspace in a step of its own, kept there as they were summed or in the result's type.
enum class PartSums { kNone, kInResult, kInSumType, kInResultType };

struct AlgorithmTraits {
  int parts = 1;  ///< of the inner dimension
  PartSums sums = PartSums::kNone;
};

/// Whether the algorithm gives what device_products.h promises for the problem.
bool is_as_promised(const ProductProblem& problem, const AlgorithmTraits& algorithm);

/// Device memory that an algorithm may work in, of a GPU of compute capability `capability` (90 for sm_90). Those that
/// cut the inner dimension keep a result in fp32 for each part there.
size_t product_workspace_bytes(int capability);

}  // namespace vit_hybrid::kernels
