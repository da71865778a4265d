// The relative L2 error of fields that lie in patches, forward and backward: nothing is rearranged in memory.
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include "model/field_kernels_cuda.h"
#include "src/base/cuda_reduce.cuh"

namespace vit_hybrid::model {

namespace {

constexpr int kThreads = 256;
constexpr int64_t kVectorsOfThread = 4;
constexpr int64_t kMostSamplesOfGrid = 65535;

template <class T>
__global__ void __launch_bounds__(kThreads) field_squares_kernel(FieldArrays<T> arrays, VectorSplit split,
                                                                 int64_t per_thread, int64_t samples, double* partial) {
  const auto share = ThreadShare::of(blockIdx.x, static_cast<int>(threadIdx.x), kThreads, per_thread);
  for (int64_t sample = blockIdx.y; sample < samples; sample += gridDim.y) {
    const FieldSquares own = field_squares_share(arrays, sample, split, share);
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
    add_field_parts_kernel(const double* partial, int parts, int64_t samples, double* squares) {
  for (int64_t sample = blockIdx.x; sample < samples; sample += gridDim.x) {
    const double* const part = partial + (sample * kFieldParts + threadIdx.x) * 2;
    const bool has_one = static_cast<int>(threadIdx.x) < parts;
    const double error = block_sum<kFieldParts>(has_one ? part[0] : 0.0);
    const double truth = block_sum<kFieldParts>(has_one ? part[1] : 0.0);
    if (threadIdx.x == 0) {
      squares[sample] = error;
      squares[samples + sample] = truth;
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

unsigned samples_of_grid(int64_t samples) {
  return static_cast<unsigned>(samples < kMostSamplesOfGrid ? samples : kMostSamplesOfGrid);
}

}  // namespace

template <class T>
void launch_field_squares(const FieldArrays<T>& arrays, int64_t samples, double* workspace, double* squares,
                          CUstream_st* stream) {
  if (samples == 0 || arrays.elements == 0) {
    return;
  }
  const VectorSplit split = field_split(arrays);
  const int64_t needed = num_blocks_for(split.num_items(), static_cast<int64_t>(kFieldParts) * kThreads);
  const int64_t per_thread = needed < kVectorsOfThread ? kVectorsOfThread : needed;
  const auto parts = static_cast<unsigned>(num_blocks_for(split.num_items(), kThreads * per_thread));
  field_squares_kernel<<<dim3(parts, samples_of_grid(samples)), kThreads, 0, stream>>>(arrays, split, per_thread,
                                                                                       samples, workspace);
  add_field_parts_kernel<<<samples_of_grid(samples), kFieldParts, 0, stream>>>(workspace, static_cast<int>(parts),
                                                                               samples, squares);
}

template <class T>
void launch_field_gradient(const FieldArrays<T>& arrays, int64_t samples, CUstream_st* stream) {
  if (samples == 0 || arrays.elements == 0) {
    return;
  }
  const VectorSplit split = field_split(arrays);
  const auto blocks = static_cast<unsigned>(num_blocks_for(split.num_items(), kThreads * kVectorsOfThread));
  field_gradient_kernel<<<dim3(blocks, samples_of_grid(samples)), kThreads, 0, stream>>>(arrays, split, samples);
}

#define VH_LAUNCH_FIELD(T)                                                                            \
  template void launch_field_squares(const FieldArrays<T>&, int64_t, double*, double*, CUstream_st*); \
  template void launch_field_gradient(const FieldArrays<T>&, int64_t, CUstream_st*);
VH_LAUNCH_FIELD(float)
VH_LAUNCH_FIELD(double)
VH_LAUNCH_FIELD(c10::BFloat16)
VH_LAUNCH_FIELD(c10::Half)
#undef VH_LAUNCH_FIELD

}  // namespace vit_hybrid::model
