// The kernels of dropout, stochastic depth, residual sums and masks of attention on a GPU, on plain arrays.
#include "src/kernels/dropout_cuda.h"

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

namespace vit_hybrid::kernels {

namespace {

constexpr int kThreads = 256;
constexpr int kVectorsOfThread = 2;
constexpr int kMaskThreads = 128;
constexpr int64_t kMostBlocks = 1 << 20;

template <class T>
__global__ void __launch_bounds__(kThreads)
    dropout_kernel(DropoutPass<T> pass, VectorSplit split, SampleNumbers samples) {
  const auto share = ThreadShare::of(blockIdx.x, static_cast<int>(threadIdx.x), kThreads, kVectorsOfThread);
  dropout_share(pass, blockIdx.y, static_cast<uint64_t>(samples.numbers[blockIdx.y]), split, share);
}

// A block draws a row at a time.
__global__ void __launch_bounds__(kMaskThreads) attention_mask_kernel(AttentionMask mask, SampleNumbers samples) {
  const int64_t rows_of_sample = mask.heads * mask.queries;
  for (int64_t row = blockIdx.x; row < rows_of_sample * samples.count; row += gridDim.x) {
    const auto sample = static_cast<uint64_t>(samples.numbers[row / rows_of_sample]);
    const uint64_t first = mask.first_draw(row % rows_of_sample);
    for (int64_t block = threadIdx.x; block < num_blocks_of(first, mask.keys); block += kMaskThreads) {
      keep_block(mask.stream, sample, first, mask.keys, block, mask.keep + row * mask.keys);
    }
  }
}

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
void launch_dropout(const DropoutPass<T>& pass, const SampleNumbers& samples, CUstream_st* stream) {
  if (samples.count == 0 || pass.tokens == 0 || pass.features == 0) {
    return;
  }
  const VectorSplit split = dropout_split(pass);
  const auto blocks = static_cast<unsigned>(num_blocks_for(split.num_items(), kThreads * kVectorsOfThread));
  const dim3 grid(blocks, static_cast<unsigned>(samples.count));  // few samples: no strides
  dropout_kernel<<<grid, kThreads, 0, stream>>>(pass, split, samples);
}

void launch_attention_mask(const AttentionMask& mask, const SampleNumbers& samples, CUstream_st* stream) {
  const int64_t rows = mask.heads * mask.queries * samples.count;
  if (rows == 0 || mask.keys == 0) {
    return;
  }
  attention_mask_kernel<<<blocks_of_grid(rows, kMostBlocks), kMaskThreads, 0, stream>>>(mask, samples);
}

template void launch_dropout(const DropoutPass<float>&, const SampleNumbers&, CUstream_st*);
template void launch_dropout(const DropoutPass<double>&, const SampleNumbers&, CUstream_st*);
template void launch_dropout(const DropoutPass<c10::BFloat16>&, const SampleNumbers&, CUstream_st*);
template void launch_dropout(const DropoutPass<c10::Half>&, const SampleNumbers&, CUstream_st*);

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
