// The kernels of the error of fields and of its gradient on a GPU, on plain arrays.
#include "src/kernels/field_error_cuda.h"

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

namespace vit_hybrid::kernels {

namespace {

constexpr int kThreads = 256;
constexpr int64_t kVectorsOfThread = 4;

template <class T>
__global__ void __launch_bounds__(kThreads)
    field_sums_kernel(FieldArrays<T> arrays, VectorSplit split, int64_t per_thread, int64_t samples, double* partial) {
  const auto share = ThreadShare::of(blockIdx.x, static_cast<int>(threadIdx.x), kThreads, per_thread);
  for (int64_t sample = blockIdx.y; sample < samples; sample += gridDim.y) {
    const FieldSums own = field_sums_share(arrays, sample, split, share);
    const double error = block_sum<kThreads>(own.error);
    const double truth = block_sum<kThreads>(own.truth);
    if (threadIdx.x == 0) {
      double* const part = partial + (sample * kFieldParts + blockIdx.x) * 2;
      part[0] = error;
      part[1] = truth;
    }
  }
}

// A block adds up the parts of a sample.
__global__ void __launch_bounds__(kFieldParts)
    add_field_parts_kernel(const double* partial, int parts, int64_t samples, double* sums) {
  for (int64_t sample = blockIdx.x; sample < samples; sample += gridDim.x) {
    const double* const part = partial + (sample * kFieldParts + threadIdx.x) * 2;
    const bool has_one = static_cast<int>(threadIdx.x) < parts;
    const double error = block_sum<kFieldParts>(has_one ? part[0] : 0.0);
    const double truth = block_sum<kFieldParts>(has_one ? part[1] : 0.0);
    if (threadIdx.x == 0) {
      sums[sample] = error;
      sums[samples + sample] = truth;
    }
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    field_gradient_kernel(FieldArrays<T> arrays, VectorSplit split, int64_t samples) {
  const auto share = ThreadShare::of(blockIdx.x, static_cast<int>(threadIdx.x), kThreads, kVectorsOfThread);
  for (int64_t sample = blockIdx.y; sample < samples; sample += gridDim.y) {
    field_gradient_share(arrays, sample, split, share);
  }
}

}  // namespace

template <class T>
void launch_field_sums(const FieldArrays<T>& arrays, int64_t samples, double* workspace, double* sums,
                       CUstream_st* stream) {
  if (samples == 0 || arrays.elements == 0) {
    return;
  }
  const VectorSplit split = field_split(arrays);
  const int64_t needed = num_blocks_for(split.num_items(), static_cast<int64_t>(kFieldParts) * kThreads);
  const int64_t per_thread = needed < kVectorsOfThread ? kVectorsOfThread : needed;
  const dim3 grid = grid_of(split, kThreads * per_thread, samples);
  field_sums_kernel<<<grid, kThreads, 0, stream>>>(arrays, split, per_thread, samples, workspace);
  add_field_parts_kernel<<<grid.y, kFieldParts, 0, stream>>>(workspace, static_cast<int>(grid.x), samples, sums);
}

template <class T>
void launch_field_gradient(const FieldArrays<T>& arrays, int64_t samples, CUstream_st* stream) {
  if (samples == 0 || arrays.elements == 0) {
    return;
  }
  const VectorSplit split = field_split(arrays);
  const dim3 grid = grid_of(split, kThreads * kVectorsOfThread, samples);
  field_gradient_kernel<<<grid, kThreads, 0, stream>>>(arrays, split, samples);
}

#define VH_LAUNCH_FIELD(T)                                                                         \
  template void launch_field_sums(const FieldArrays<T>&, int64_t, double*, double*, CUstream_st*); \
  template void launch_field_gradient(const FieldArrays<T>&, int64_t, CUstream_st*);
VH_LAUNCH_FIELD(float)
VH_LAUNCH_FIELD(double)
VH_LAUNCH_FIELD(c10::BFloat16)
VH_LAUNCH_FIELD(c10::Half)
#undef VH_LAUNCH_FIELD

}  // namespace vit_hybrid::kernels
