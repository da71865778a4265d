// Residual sums and drop path.
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include "src/base/cuda_grid.cuh"
#include "src/kernels/sample_kernels_cuda.h"

namespace vit_hybrid::kernels {

namespace {

constexpr int kThreads = 256;
constexpr int kVectorsOfThread = 2;

template <class T>
__global__ void __launch_bounds__(kThreads) scaled_sum_kernel(ScaledSum<T> sum, VectorSplit split, int64_t samples) {
  const auto share = ThreadShare::of(blockIdx.x, static_cast<int>(threadIdx.x), kThreads, kVectorsOfThread);
  for (int64_t sample = blockIdx.y; sample < samples; sample += gridDim.y) {
    scaled_sum_share(sum, sample, split, share);
  }
}

template <class F>
__global__ void path_scales_kernel(DrawStream draws, SampleNumbers samples, F keep_scale, F* scales) {
  const int n = static_cast<int>(threadIdx.x);
  if (n < samples.count) {
    const bool keeps = draws.bits(static_cast<uint64_t>(samples.numbers[n]), 0) >= draws.threshold;
    scales[n] = keeps ? keep_scale : F(0);
  }
}

}  // namespace

template <class T>
void launch_scaled_sum(const ScaledSum<T>& sum, int64_t samples, CUstream_st* stream) {
  if (samples == 0 || sum.elements == 0) {
    return;
  }
  const VectorSplit split = scaled_sum_split(sum);
  scaled_sum_kernel<<<grid_of(split, kThreads * kVectorsOfThread, samples), kThreads, 0, stream>>>(sum, split, samples);
}

template <class F>
void launch_path_scales(const DrawStream& draws, const SampleNumbers& samples, double keep_scale, F* scales,
                        CUstream_st* stream) {
  path_scales_kernel<<<1, SampleNumbers::kMost, 0, stream>>>(draws, samples, static_cast<F>(keep_scale), scales);
}

template void launch_scaled_sum(const ScaledSum<float>&, int64_t, CUstream_st*);
template void launch_scaled_sum(const ScaledSum<double>&, int64_t, CUstream_st*);
template void launch_scaled_sum(const ScaledSum<c10::BFloat16>&, int64_t, CUstream_st*);
template void launch_scaled_sum(const ScaledSum<c10::Half>&, int64_t, CUstream_st*);
template void launch_path_scales(const DrawStream&, const SampleNumbers&, double, float*, CUstream_st*);
template void launch_path_scales(const DrawStream&, const SampleNumbers&, double, double*, CUstream_st*);

}  // namespace vit_hybrid::kernels
