// Adam's kernel: every array is read and written once.
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include "parallel/zero/update_kernels_cuda.h"

namespace vit_hybrid::zero {

namespace {

constexpr int kThreads = 256;
constexpr int kVectorsOfThread = 4;

__global__ void count_adam_step_kernel(double* step, AdamConstants constants) {
  count_adam_step(step, constants);
}

template <class Master, class Gradient, class Parameter>
__global__ void __launch_bounds__(kThreads)
    adam_kernel(AdamArrays<Master, Gradient, Parameter> arrays, VectorSplit split, StepNumbers step,
                AdamConstants constants, SegmentTable weight_decay) {
  if (step[kStepSkip] == 0.0) {
    const auto share = ThreadShare::of(blockIdx.x, static_cast<int>(threadIdx.x), kThreads, kVectorsOfThread);
    adam_share(arrays, split, share, step, constants, weight_decay);
  }
}

}  // namespace

void launch_count_adam_step(double* step, const AdamConstants& constants, CUstream_st* stream) {
  count_adam_step_kernel<<<1, 1, 0, stream>>>(step, constants);
}

template <class Master, class Gradient, class Parameter>
void launch_adam(const AdamArrays<Master, Gradient, Parameter>& arrays, int64_t count, const StepNumbers& step,
                 const AdamConstants& constants, const SegmentTable& weight_decay, CUstream_st* stream) {
  if (count == 0) {
    return;
  }
  const VectorSplit split = make_vector_split(count, kAdamWidth<Master>,
                                              {{arrays.weights, sizeof(Master)},
                                               {arrays.exp_avg, sizeof(Master)},
                                               {arrays.exp_avg_sq, sizeof(Master)},
                                               {arrays.gradients, sizeof(Gradient)},
                                               {arrays.parameters, sizeof(Parameter)}});
  constexpr int64_t kItemsOfBlock = kThreads * kVectorsOfThread;
  const auto blocks = static_cast<unsigned>(num_blocks_for(split.num_items(), kItemsOfBlock));
  adam_kernel<<<blocks, kThreads, 0, stream>>>(arrays, split, step, constants, weight_decay);
}

using c10::BFloat16;
using c10::Half;

#define VH_LAUNCH_ADAM(Master, Gradient, Parameter)                                                      \
  template void launch_adam(const AdamArrays<Master, Gradient, Parameter>&, int64_t, const StepNumbers&, \
                            const AdamConstants&, const SegmentTable&, CUstream_st*);
VH_LAUNCH_ADAM(double, double, double)
VH_LAUNCH_ADAM(float, float, float)
VH_LAUNCH_ADAM(float, float, BFloat16)
VH_LAUNCH_ADAM(float, float, Half)
VH_LAUNCH_ADAM(float, BFloat16, BFloat16)
VH_LAUNCH_ADAM(float, Half, Half)
#undef VH_LAUNCH_ADAM

}  // namespace vit_hybrid::zero
