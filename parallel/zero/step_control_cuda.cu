// A step's decision on a GPU, by one thread.
#include "parallel/zero/rules/update_cuda.h"

namespace vit_hybrid::zero {

namespace {

__global__ void decide_kernel(StepScalars* step) {
  decide(*step);
}

}  // namespace

void launch_decide(StepScalars* step, CUstream_st* stream) {
  decide_kernel<<<1, 1, 0, stream>>>(step);
}

}  // namespace vit_hybrid::zero
