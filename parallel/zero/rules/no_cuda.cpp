// The optimizer's passes in a program without CUDA, where no tensor is on a GPU.
#include "parallel/zero/rules/device_update.h"
#include "src/base/error.h"

namespace vit_hybrid::zero {

void adam_step_cuda(const OwnedTensors& /*owned*/, const at::Tensor& /*step*/, const OptimizerOptions& /*options*/) {
  VH_ASSERT(false, "this program was built without CUDA");
}

void decide_cuda(const at::Tensor& /*step*/) {
  VH_ASSERT(false, "this program was built without CUDA");
}

void sum_of_squares_cuda(const at::Tensor& /*values*/, const CountedTable& /*ranges*/, const at::Tensor& /*workspace*/,
                         const at::Tensor& /*sums*/) {
  VH_ASSERT(false, "this program was built without CUDA");
}

}  // namespace vit_hybrid::zero
