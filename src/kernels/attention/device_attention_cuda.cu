// The kernel that copies the gradients of q, k and v into that of qkv on a GPU.
#include "src/kernels/attention/device_attention_cuda.h"

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

namespace vit_hybrid::kernels {

namespace {

constexpr int kWarpThreads = 32;  // threads that take neighbouring vectors of a row
constexpr int kRowsAtOnce = 8;
constexpr int kRowsOfThread = 4;
constexpr int kRowsOfBlock = kRowsAtOnce * kRowsOfThread;

template <int kWidth, class T>
__global__ void __launch_bounds__(kWarpThreads* kRowsAtOnce) qkv_gradient_kernel(QkvGradientPass<T> pass) {
  const int64_t column = (static_cast<int64_t>(blockIdx.x) * kWarpThreads + threadIdx.x) * kWidth;
  const int64_t stride = static_cast<int64_t>(gridDim.y) * kRowsOfBlock;
  for (int64_t first = static_cast<int64_t>(blockIdx.y) * kRowsOfBlock; first < pass.rows; first += stride) {
    if (column < 3 * pass.columns) {
      qkv_gradient_share<kWidth, kRowsOfThread>(pass, column, first + threadIdx.y, kRowsAtOnce);
    }
  }
}

template <int kWidth, class T>
void launch(const QkvGradientPass<T>& pass, CUstream_st* stream) {
  const dim3 grid(static_cast<unsigned>(num_blocks_for(3 * pass.columns, kWarpThreads * kWidth)),
                  repeats_of_grid(num_blocks_for(pass.rows, kRowsOfBlock)));
  qkv_gradient_kernel<kWidth><<<grid, dim3(kWarpThreads, kRowsAtOnce), 0, stream>>>(pass);
}

}  // namespace

template <class T>
void launch_qkv_gradient(const QkvGradientPass<T>& pass, CUstream_st* stream) {
  if (pass.rows == 0 || pass.columns == 0) {
    return;
  }
  constexpr int kWidth = kVectorWidth<T>;
  const VectorSplit split = make_vector_split(
      pass.columns, kWidth, {{pass.dq, sizeof(T)}, {pass.dk, sizeof(T)}, {pass.dv, sizeof(T)}, {pass.dqkv, sizeof(T)}});
  if (split.num_singles() == 0) {
    launch<kWidth>(pass, stream);
  } else {
    launch<1>(pass, stream);
  }
}

template void launch_qkv_gradient(const QkvGradientPass<float>&, CUstream_st*);
template void launch_qkv_gradient(const QkvGradientPass<double>&, CUstream_st*);
template void launch_qkv_gradient(const QkvGradientPass<c10::BFloat16>&, CUstream_st*);
template void launch_qkv_gradient(const QkvGradientPass<c10::Half>&, CUstream_st*);

}  // namespace vit_hybrid::kernels
