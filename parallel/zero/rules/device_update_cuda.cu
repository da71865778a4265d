// The kernels of Adam's step, of sums of squares and of the step's decision, on plain arrays.
#include "parallel/zero/rules/device_update_cuda.h"

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

namespace vit_hybrid::zero {

namespace {

constexpr int kThreads = 256;
constexpr int kVectorsOfThread = 4;

template <class Master, class Gradient, class Parameter>
__global__ void __launch_bounds__(kThreads)
    adam_kernel(AdamArrays<Master, Gradient, Parameter> arrays, int64_t vectors, AdamConstants<Master> constants,
                const StepScalars* step, SegmentTable segments) {
  const auto share = kernels::ThreadShare::of(blockIdx.x, static_cast<int>(threadIdx.x), kThreads, kVectorsOfThread);
  adam_share(arrays, vectors, share, constants, *step, segments);
}

constexpr int kFewestVectorsOfThread = 4;

template <class T>
__global__ void __launch_bounds__(kThreads)
    square_kernel(const T* values, SummedRanges ranges, int64_t per_thread, double* partial) {
  const auto share = kernels::ThreadShare::of(blockIdx.x, static_cast<int>(threadIdx.x), kThreads, per_thread);
  const SquareCount own = square_share(values, ranges, share);
  const double sum = kernels::block_sum<kThreads>(own.sum);
  const double not_finite = kernels::block_sum<kThreads>(own.not_finite);
  if (threadIdx.x == 0) {
    partial[2 * blockIdx.x] = sum;
    partial[2 * blockIdx.x + 1] = not_finite;
  }
}

__global__ void __launch_bounds__(kSquareBlocks) add_partial_kernel(const double* partial, int blocks, double* sums) {
  const bool has_one = static_cast<int>(threadIdx.x) < blocks;
  const double sum = kernels::block_sum<kSquareBlocks>(has_one ? partial[2 * threadIdx.x] : 0.0);
  const double not_finite = kernels::block_sum<kSquareBlocks>(has_one ? partial[2 * threadIdx.x + 1] : 0.0);
  if (threadIdx.x == 0) {
    sums[0] += sum;
    sums[1] += not_finite;
  }
}

__global__ void decide_kernel(StepScalars* step) {
  decide(*step);
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
  const auto blocks = static_cast<unsigned>(kernels::num_blocks_for(vectors, int64_t{kThreads} * kVectorsOfThread));
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

template <class T>
void launch_sum_of_squares(const T* values, const SummedRanges& ranges, double* workspace, double* sums,
                           CUstream_st* stream) {
  const int64_t vectors = ranges.last.next_begin(kernels::kVectorWidth<T>);
  const int64_t most = static_cast<int64_t>(kSquareBlocks) * kThreads;
  int64_t per_thread = kernels::num_blocks_for(vectors, most);
  per_thread = per_thread < kFewestVectorsOfThread ? kFewestVectorsOfThread : per_thread;
  const auto blocks = static_cast<int>(kernels::num_blocks_for(vectors, kThreads * per_thread));
  square_kernel<<<static_cast<unsigned>(blocks), kThreads, 0, stream>>>(values, ranges, per_thread, workspace);
  add_partial_kernel<<<1, kSquareBlocks, 0, stream>>>(workspace, blocks, sums);
}

template void launch_sum_of_squares(const double*, const SummedRanges&, double*, double*, CUstream_st*);
template void launch_sum_of_squares(const float*, const SummedRanges&, double*, double*, CUstream_st*);
template void launch_sum_of_squares(const c10::BFloat16*, const SummedRanges&, double*, double*, CUstream_st*);
template void launch_sum_of_squares(const c10::Half*, const SummedRanges&, double*, double*, CUstream_st*);

void launch_decide(StepScalars* step, CUstream_st* stream) {
  decide_kernel<<<1, 1, 0, stream>>>(step);
}

}  // namespace vit_hybrid::zero
