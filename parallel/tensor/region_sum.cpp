// The start and the end of a sum over the tensor axis.
#include "parallel/tensor/region_sum.h"

#include <utility>

#include "src/base/error.h"

namespace vit_hybrid::tensor {

comm::Work start_region_sum(const at::Tensor& partial, comm::Communicator& group) {
  // A copy would be summed in its stead, and the caller would go on with its own part.
  VH_ASSERT(partial.is_contiguous(), "a partial result to be summed must be contiguous");
  return group.all_reduce(partial, comm::ReduceOp::kSum);
}

at::Tensor RegionSum::finish() && {
  work.wait();
  if (bias.defined()) {
    y.detach().add_(bias);  // backward reads no values of the output
  }
  return std::move(y);
}

}  // namespace vit_hybrid::tensor
