// Adam's kernel: every array is read and written once.
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include "parallel/zero/rules/update_kernels_cuda.h"

namespace vit_hybrid::zero {

namespace {

constexpr int kThreads = 256;
constexpr int kVectorsOfThread = 4;

template <class Master, class Gradient, class Parameter>
__global__ void __launch_bounds__(kThreads)
    adam_kernel(AdamArrays<Master, Gradient, Parameter> arrays, int64_t vectors, AdamConstants<Master> constants,
                const StepScalars* step, SegmentTable segments) {
  const auto share = ThreadShare::of(blockIdx.x, static_cast<int>(threadIdx.x), kThreads, kVectorsOfThread);
  adam_share(arrays, vectors, share, constants, *step, segments);
}

}  // namespace

template <class Master, class Gradient, class Parameter>
void launch_adam(const AdamArrays<Master, Gradient, Parameter>& arrays, int64_t count,
                 const AdamConstants<Master>& constants, const StepScalars* step, const SegmentTable& segments,
                 CUstream_st* stream) {
  if (count == 0) {
    return;
  }
  const int64_t vectors = count / kAdamWidth<Master>;
  const auto blocks = static_cast<unsigned>(num_blocks_for(vectors, int64_t{kThreads} * kVectorsOfThread));
  adam_kernel<<<blocks, kThreads, 0, stream>>>(arrays, vectors, constants, step, segments);
}

using c10::BFloat16;
using c10::Half;

#define VH_LAUNCH_ADAM(Master, Gradient, Parameter)                                                                \
  template void launch_adam(const AdamArrays<Master, Gradient, Parameter>&, int64_t, const AdamConstants<Master>&, \
                            const StepScalars*, const SegmentTable&, CUstream_st*);
VH_LAUNCH_ADAM(double, double, double)
VH_LAUNCH_ADAM(float, float, float)
VH_LAUNCH_ADAM(float, float, BFloat16)
VH_LAUNCH_ADAM(float, float, Half)
VH_LAUNCH_ADAM(float, BFloat16, BFloat16)
VH_LAUNCH_ADAM(float, Half, Half)
#undef VH_LAUNCH_ADAM

}  // namespace vit_hybrid::zero
