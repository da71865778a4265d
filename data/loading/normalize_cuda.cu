// The kernels that normalize a batch of images or of fields on a GPU, on plain arrays. Their own, because a chain of
// ATen's operations moves 195 GB/s of images and 796 of fields on an H200, and one pass 3,574 and 4,240.
//
// A thread writes 16 bytes at a time, and the threads of a warp neighbouring ones, so that a store fills what memory
// moves; of an image's bytes it reads three vectors of as many bytes, which leave holes that the next read fills.
#include "data/loading/normalize_cuda.h"

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

namespace vit_hybrid::data {

namespace {

constexpr int kThreads = 256;
constexpr int kVectorsOfThread = 4;  // a table takes as long as two of them

// Calls `work(place)` for the thread's vectors of a plane.
template <int kWidth, class Work>
__device__ void for_vectors(int64_t plane, const Work& work) {
  const auto share = kernels::ThreadShare::of(blockIdx.x, static_cast<int>(threadIdx.x), kThreads, kVectorsOfThread);
  for (int64_t i = share.first; i < share.end_among(plane / kWidth); i += share.stride) {
    work(i * kWidth);
  }
}

template <int kWidth, class T>
__global__ void __launch_bounds__(kThreads) normalize_images_kernel(ImagePass<T> pass) {
  __shared__ ByteTable<T> table;
  table.fill(pass.mean, pass.std, static_cast<int>(threadIdx.x), kThreads);
  __syncthreads();
  for (int64_t image = blockIdx.y; image < pass.images; image += gridDim.y) {
    for_vectors<kWidth>(pass.pixels, [&](int64_t pixel) { normalize_pixels<kWidth>(pass, table, image, pixel); });
  }
}

template <int kWidth, class T>
__global__ void __launch_bounds__(kThreads) normalize_fields_kernel(FieldPass<T> pass) {
  for (int64_t plane = blockIdx.y; plane < pass.planes; plane += gridDim.y) {
    const float mean = pass.mean[plane % pass.channels];
    const float std = pass.std[plane % pass.channels];
    for_vectors<kWidth>(pass.plane, [&](int64_t place) { normalize_values<kWidth>(pass, plane, place, mean, std); });
  }
}

template <int kWidth>
dim3 grid_for(int64_t plane, int64_t repeats) {
  return {static_cast<unsigned>(kernels::num_blocks_for(plane, kThreads * kVectorsOfThread * kWidth)),
          kernels::repeats_of_grid(repeats)};
}

template <int kWidth, class T>
void launch(const ImagePass<T>& pass, CUstream_st* stream) {
  normalize_images_kernel<kWidth><<<grid_for<kWidth>(pass.pixels, pass.images), kThreads, 0, stream>>>(pass);
}

template <int kWidth, class T>
void launch(const FieldPass<T>& pass, CUstream_st* stream) {
  normalize_fields_kernel<kWidth><<<grid_for<kWidth>(pass.plane, pass.planes), kThreads, 0, stream>>>(pass);
}

// By vectors where each plane is a whole number of aligned ones, else value by value.
template <class T, class Pass>
void launch(const Pass& pass, int64_t plane, const kernels::FlatArray& from, const T* to, CUstream_st* stream) {
  constexpr int kWidth = kernels::kVectorWidth<T>;
  if (kernels::make_vector_split(plane, kWidth, {from, {to, sizeof(T)}}).num_singles() == 0) {
    launch<kWidth>(pass, stream);
  } else {
    launch<1>(pass, stream);
  }
}

}  // namespace

template <class T>
void launch_normalize(const ImagePass<T>& pass, CUstream_st* stream) {
  if (pass.images > 0 && pass.pixels > 0) {
    launch(pass, pass.pixels, {pass.bytes, 1}, pass.planes, stream);
  }
}

template <class T>
void launch_normalize(const FieldPass<T>& pass, CUstream_st* stream) {
  if (pass.planes > 0 && pass.plane > 0) {
    launch(pass, pass.plane, {pass.values, sizeof(float)}, pass.normalized, stream);
  }
}

template void launch_normalize(const ImagePass<float>&, CUstream_st*);
template void launch_normalize(const ImagePass<double>&, CUstream_st*);
template void launch_normalize(const ImagePass<c10::BFloat16>&, CUstream_st*);
template void launch_normalize(const ImagePass<c10::Half>&, CUstream_st*);
template void launch_normalize(const FieldPass<float>&, CUstream_st*);
template void launch_normalize(const FieldPass<double>&, CUstream_st*);
template void launch_normalize(const FieldPass<c10::BFloat16>&, CUstream_st*);
template void launch_normalize(const FieldPass<c10::Half>&, CUstream_st*);

}  // namespace vit_hybrid::data
