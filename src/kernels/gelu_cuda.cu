// The kernels of GELU, of its backward and of sums of columns on a GPU, on plain arrays.
#include "src/kernels/gelu_cuda.h"

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <type_traits>

#include "src/kernels/device_instructions.h"

namespace vit_hybrid::kernels {

namespace {

constexpr int kThreads = 256;
constexpr int kColumnSumRows = 8;  // rows that one block of threads takes at a time
constexpr int64_t kMostParts = 256;
constexpr int kWarpThreads = 32;  // threads of a warp: neighbouring columns
constexpr int64_t kFewestRowsOfPart = 4 * kColumnSumRows;

using c10::BFloat16;
using c10::Half;

struct DeviceFunctions {
  __device__ static float exp(float x) { return power_of_two(1.44269504f * x); }
  __device__ static float power_of_two(float x) { return kernels::power_of_two(x); }
  __device__ static float reciprocal(float x) { return kernels::reciprocal(x); }
};

// For results in T: half precision hides the errors of quick functions.
template <class T, GeluKind kind>
__device__ Normal<ComputeType<T>> normal_at(ComputeType<T> z) {
  constexpr bool kIsHalf = sizeof(T) == 2;
  if constexpr (kind == GeluKind::kTanh) {
    return tanh_normal<std::conditional_t<kIsHalf, DeviceFunctions, LibraryFunctions>>(z);
  } else if constexpr (kIsHalf) {
    return quick_normal<DeviceFunctions>(z);
  } else {
    return exact_normal(z);
  }
}

template <class T, GeluKind kind, int kWidth>
__global__ void __launch_bounds__(kThreads) gelu_kernel(const T* __restrict__ z, T* __restrict__ y, int64_t vectors) {
  const int64_t index = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (index >= vectors) {
    return;
  }
  ComputeType<T> values[kWidth];
  widen<kWidth>(load_vector<kWidth>(z + index * kWidth), values);
#pragma unroll
  for (int i = 0; i < kWidth; ++i) {
    values[i] = gelu_value(values[i], normal_at<T, kind>(values[i]));
  }
  store_vector(y + index * kWidth, rounded_vector<T>(values));
}

// What a column-sum kernel adds up: dy itself.
template <class T>
struct PlainRows {
  const T* dy;

  /// The numbers from `offset` on.
  template <int kWidth>
  __device__ void read(int64_t offset, ComputeType<T> (&values)[kWidth]) const {
    widen<kWidth>(load_vector<kWidth>(dy + offset), values);
  }
};

// What the backward of GELU adds up: the gradient of z, which it stores on the way. The sums are of what is stored.
template <class T, GeluKind kind>
struct GeluGradientRows {
  const T* dy;
  const T* z;
  T* dz;

  template <int kWidth>
  __device__ void read(int64_t offset, ComputeType<T> (&values)[kWidth]) const {
    ComputeType<T> inputs[kWidth];
    widen<kWidth>(load_vector<kWidth>(z + offset), inputs);
    widen<kWidth>(load_vector<kWidth>(dy + offset), values);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      values[i] *= gelu_slope(inputs[i], normal_at<T, kind>(inputs[i]));
    }
    const auto rounded = rounded_vector<T>(values);
    store_vector(dz + offset, rounded);
    widen<kWidth>(rounded, values);
  }
};

// A block takes 32 vectors of neighbouring columns and one part of the rows, 8 rows at a time. Each thread adds up its
// rows, then the 8 sums of a column are added in their order.
template <class T, int kWidth, class Rows>
__global__ void __launch_bounds__(kThreads)
    column_sum_kernel(Rows source, ComputeType<T>* __restrict__ partial, int64_t rows, int64_t columns, int64_t parts) {
  __shared__ ComputeType<T> sums[kColumnSumRows][kWarpThreads * kWidth];
  const int64_t column = (static_cast<int64_t>(blockIdx.x) * kWarpThreads + threadIdx.x) * kWidth;
  const int64_t part = blockIdx.y;
  const int64_t begin = rows * part / parts, end = rows * (part + 1) / parts;
  ComputeType<T> sum[kWidth] = {};
  if (column < columns) {
#pragma unroll 4
    for (int64_t row = begin + threadIdx.y; row < end; row += kColumnSumRows) {
      ComputeType<T> values[kWidth];
      source.read(row * columns + column, values);
#pragma unroll
      for (int i = 0; i < kWidth; ++i) {
        sum[i] += values[i];
      }
    }
  }
  if (partial == nullptr) {
    return;
  }
  // Element i of all threads of a row lies together: no two threads of a warp meet in a bank.
#pragma unroll
  for (int i = 0; i < kWidth; ++i) {
    sums[threadIdx.y][i * kWarpThreads + threadIdx.x] = sum[i];
  }
  __syncthreads();
  const int thread = threadIdx.y * kWarpThreads + threadIdx.x;
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kWarpThreads * kWidth;
  for (int i = thread; i < kWarpThreads * kWidth && first + i < columns; i += kThreads) {
    const int place = (i % kWidth) * kWarpThreads + i / kWidth;
    ComputeType<T> total = sums[0][place];
    for (int row = 1; row < kColumnSumRows; ++row) {
      total += sums[row][place];
    }
    partial[part * columns + first + i] = total;
  }
}

// One column a thread of the first row of threads; each row of threads adds up every eighth part.
template <class Sum, class Gradient>
__global__ void __launch_bounds__(kThreads)
    add_parts_kernel(const Sum* __restrict__ partial, Gradient* gradient, int64_t columns, int64_t parts) {
  __shared__ Sum sums[kColumnSumRows][kWarpThreads];
  const int64_t column = static_cast<int64_t>(blockIdx.x) * kWarpThreads + threadIdx.x;
  Sum sum = 0;
  if (column < columns) {
#pragma unroll 4
    for (int64_t part = threadIdx.y; part < parts; part += kColumnSumRows) {
      sum += partial[part * columns + column];
    }
  }
  sums[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y == 0 && column < columns) {
    Sum total = sums[0][threadIdx.x];
    for (int row = 1; row < kColumnSumRows; ++row) {
      total += sums[row][threadIdx.x];
    }
    gradient[column] = static_cast<Gradient>(static_cast<Sum>(gradient[column]) + total);
  }
}

unsigned blocks_for(int64_t count, int64_t of_block) {
  return static_cast<unsigned>((count + of_block - 1) / of_block);
}

template <class... Pointer>
bool are_aligned(Pointer... pointers) {
  return ((reinterpret_cast<uintptr_t>(pointers) % 16 == 0) && ...);
}

template <class T, int kWidth, class Rows>
void launch_rows(const Rows& source, ComputeType<T>* partial, int64_t rows, int64_t columns, int64_t parts,
                 CUstream_st* stream) {
  const dim3 grid(blocks_for(columns, kWarpThreads * kWidth), static_cast<unsigned>(parts));
  column_sum_kernel<T, kWidth>
      <<<grid, dim3(kWarpThreads, kColumnSumRows), 0, stream>>>(source, partial, rows, columns, parts);
}

// By vectors where the rows are aligned for them.
template <class T, class Rows, class... Pointer>
void launch_rows_of(const Rows& source, ComputeType<T>* partial, int64_t rows, int64_t columns, int64_t parts,
                    CUstream_st* stream, Pointer... pointers) {
  if (columns % kVectorWidth<T> == 0 && are_aligned(pointers...)) {
    launch_rows<T, kVectorWidth<T>>(source, partial, rows, columns, parts, stream);
  } else {
    launch_rows<T, 1>(source, partial, rows, columns, parts, stream);
  }
}

template <class T, GeluKind kind>
void launch_gelu_of(const T* z, T* y, int64_t count, CUstream_st* stream) {
  constexpr int kWidth = kVectorWidth<T>;
  if (count % kWidth == 0 && are_aligned(z, y)) {
    gelu_kernel<T, kind, kWidth><<<blocks_for(count / kWidth, kThreads), kThreads, 0, stream>>>(z, y, count / kWidth);
  } else {
    gelu_kernel<T, kind, 1><<<blocks_for(count, kThreads), kThreads, 0, stream>>>(z, y, count);
  }
}

}  // namespace

int64_t num_column_sum_parts(int64_t rows, int64_t columns, int64_t element_bytes, int multiprocessors) {
  const int64_t width = 16 / element_bytes;
  const int64_t blocks_across = (columns + kWarpThreads * width - 1) / (kWarpThreads * width);
  // Eight blocks of 256 threads fill a multiprocessor.
  const int64_t wanted = (8 * multiprocessors + blocks_across - 1) / blocks_across;
  const int64_t most = (rows + kFewestRowsOfPart - 1) / kFewestRowsOfPart;
  const int64_t parts = wanted < most ? wanted : most;
  return parts < 1 ? 1 : parts > kMostParts ? kMostParts : parts;
}

template <class T>
void launch_gelu(const T* z, T* y, int64_t count, GeluKind kind, CUstream_st* stream) {
  kind == GeluKind::kErf ? launch_gelu_of<T, GeluKind::kErf>(z, y, count, stream)
                         : launch_gelu_of<T, GeluKind::kTanh>(z, y, count, stream);
}

template <class T>
void launch_gelu_backward(const T* dy, const T* z, T* dz, ComputeType<T>* partial, int64_t rows, int64_t columns,
                          int64_t parts, GeluKind kind, CUstream_st* stream) {
  const auto launch = [&](const auto& source) {
    launch_rows_of<T>(source, partial, rows, columns, parts, stream, dy, z, dz);
  };
  if (kind == GeluKind::kErf) {
    launch(GeluGradientRows<T, GeluKind::kErf>{dy, z, dz});
  } else {
    launch(GeluGradientRows<T, GeluKind::kTanh>{dy, z, dz});
  }
}

template <class T>
void launch_column_sums(const T* dy, ComputeType<T>* partial, int64_t rows, int64_t columns, int64_t parts,
                        CUstream_st* stream) {
  launch_rows_of<T>(PlainRows<T>{dy}, partial, rows, columns, parts, stream, dy);
}

template <class Sum, class Gradient>
void launch_add_parts(const Sum* partial, Gradient* gradient, int64_t columns, int64_t parts, CUstream_st* stream) {
  add_parts_kernel<<<blocks_for(columns, kWarpThreads), dim3(kWarpThreads, kColumnSumRows), 0, stream>>>(
      partial, gradient, columns, parts);
}

#define VH_LAUNCH_ROWS(T)                                                                                          \
  template void launch_gelu(const T*, T*, int64_t, GeluKind, CUstream_st*);                                        \
  template void launch_gelu_backward(const T*, const T*, T*, ComputeType<T>*, int64_t, int64_t, int64_t, GeluKind, \
                                     CUstream_st*);                                                                \
  template void launch_column_sums(const T*, ComputeType<T>*, int64_t, int64_t, int64_t, CUstream_st*);            \
  template void launch_add_parts(const ComputeType<T>*, T*, int64_t, int64_t, CUstream_st*);
VH_LAUNCH_ROWS(double)
VH_LAUNCH_ROWS(float)
VH_LAUNCH_ROWS(BFloat16)
VH_LAUNCH_ROWS(Half)
#undef VH_LAUNCH_ROWS

}  // namespace vit_hybrid::kernels
