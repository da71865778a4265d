// Sums partial results of the ranks of a tensor group.
#include "parallel/tensor/mappings.h"

#include "src/base/error.h"

namespace vit_hybrid::tensor {

comm::Work start_region_sum(const at::Tensor& partial, comm::Communicator& group) {
  // A copy would be summed in its stead, and the caller would go on with its own part.
  VH_ASSERT(partial.is_contiguous(), "a partial result to be summed must be contiguous");
  return group.all_reduce(partial, comm::ReduceOp::kSum);
}

}  // namespace vit_hybrid::tensor
