// Normalization of a batch on its way into the model: read as it was stored, written as the model computes.
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include "data/loading/normalize_kernels_cuda.h"
#include "src/base/cuda_grid.cuh"

namespace vit_hybrid::data {

namespace {

constexpr int kThreads = 256;
constexpr int kVectorsOfThread = 4;

template <class T>
__global__ void __launch_bounds__(kThreads) planes_kernel(PlanePass<T> pass, VectorSplit split, int64_t planes) {
  const auto share = ThreadShare::of(blockIdx.x, static_cast<int>(threadIdx.x), kThreads, kVectorsOfThread);
  for (int64_t plane = blockIdx.y; plane < planes; plane += gridDim.y) {
    normalize_plane_share(pass, plane, split, share);
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads) images_kernel(ImagePass<T> pass, VectorSplit split, int64_t images) {
  const auto share = ThreadShare::of(blockIdx.x, static_cast<int>(threadIdx.x), kThreads, kVectorsOfThread);
  for (int64_t image = blockIdx.y; image < images; image += gridDim.y) {
    normalize_image_share(pass, image, split, share);
  }
}

}  // namespace

template <class T>
void launch_normalize_planes(const PlanePass<T>& pass, int64_t samples, CUstream_st* stream) {
  const int64_t planes = samples * pass.channels;
  if (planes > 0 && pass.plane > 0) {
    const VectorSplit split = plane_split(pass);
    planes_kernel<<<grid_of(split, kThreads * kVectorsOfThread, planes), kThreads, 0, stream>>>(pass, split, planes);
  }
}

template <class T>
void launch_normalize_images(const ImagePass<T>& pass, int64_t samples, CUstream_st* stream) {
  if (samples > 0 && pass.pixels > 0) {
    const VectorSplit split = pixel_split(pass);
    images_kernel<<<grid_of(split, kThreads * kVectorsOfThread, samples), kThreads, 0, stream>>>(pass, split, samples);
  }
}

#define VH_LAUNCH_NORMALIZE(T)                                                       \
  template void launch_normalize_planes(const PlanePass<T>&, int64_t, CUstream_st*); \
  template void launch_normalize_images(const ImagePass<T>&, int64_t, CUstream_st*);
VH_LAUNCH_NORMALIZE(float)
VH_LAUNCH_NORMALIZE(double)
VH_LAUNCH_NORMALIZE(c10::BFloat16)
VH_LAUNCH_NORMALIZE(c10::Half)
#undef VH_LAUNCH_NORMALIZE

}  // namespace vit_hybrid::data
