// Epilogues: the loops over rows beside products (bias, rounding, and sums over rows, by blocks, then in order).
// Compiled for several instruction sets; the program takes the widest at its start.
#include "src/kernels/gemm/epilogue.h"

#include <ATen/Dispatch.h>
#include <ATen/OpMathType.h>
#include <ATen/Parallel.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "src/base/instruction_sets.h"
#include "src/base/memory_tracker.h"
#include "src/kernels/gemm/device_products.h"
#include "src/kernels/half_conversion.h"

namespace vit_hybrid::kernels {

namespace {

using c10::BFloat16;

#define VH_INLINE inline __attribute__((always_inline))

VH_INLINE double load(double from) {
  return from;
}
VH_INLINE float load(float from) {
  return from;
}
VH_INLINE float load(BFloat16 from) {
  return std::bit_cast<float>(static_cast<uint32_t>(from.x) << 16);
}

// Four rows at a time, one after the other into the same sum: sums pass memory a quarter as often.
template <class T, class F>
VH_INLINE void add_loop(const T* rows, int64_t num_rows, F* sums, int64_t count) {
  int64_t row = 0;
  for (; row + 4 <= num_rows; row += 4) {
    const T* const first = rows + row * count;
#pragma omp simd
    for (int64_t i = 0; i < count; ++i) {
      F sum = sums[i];
      sum += load(first[i]);
      sum += load(first[i + count]);
      sum += load(first[i + 2 * count]);
      sum += load(first[i + 3 * count]);
      sums[i] = sum;
    }
  }
  for (; row < num_rows; ++row) {
#pragma omp simd
    for (int64_t i = 0; i < count; ++i) {
      sums[i] += load(rows[row * count + i]);
    }
  }
}

#undef VH_INLINE

constexpr int64_t kBlockRows = 64;

template <class T>
void add_rounded_row(const float* sums, T* row, int64_t count) {
  constexpr int64_t kChunk = 512;  // stays in the first-level cache
  float wide[kChunk];
  for (int64_t begin = 0; begin < count; begin += kChunk) {
    const int64_t size = std::min(kChunk, count - begin);
    convert(row + begin, wide, size);
    add_rows(sums + begin, 1, wide, size);
    convert(wide, row + begin, size);
  }
}

template <class T>
void add_on_host(const at::Tensor& gradient, const at::Tensor& dy) {
  using Sum = at::opmath_type<T>;
  const int64_t columns = dy.size(1);
  const ColumnSums sums(dy.size(0), columns, c10::CppTypeToScalarType<Sum>::value);
  at::parallel_for(0, sums.num_blocks(), 1, [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block) {
      const Range rows = sums.block(block);
      add_rows(dy.const_data_ptr<T>() + rows.begin * columns, rows.size(), sums.sums<Sum>(block), columns);
    }
  });
  sums.add_to(gradient);
}

}  // namespace

VH_VERSIONS void store_row(const float* sums, const float* bias, float* y, int64_t count) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) {
    y[i] = sums[i] + bias[i];
  }
}
VH_VERSIONS void store_row(const float* sums, const float* bias, BFloat16* y, int64_t count) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) {
    y[i].x = bfloat16_bits(sums[i] + bias[i]);
  }
}

VH_VERSIONS void add_rows(const float* rows, int64_t num_rows, float* sums, int64_t count) {
  add_loop(rows, num_rows, sums, count);
}
VH_VERSIONS void add_rows(const double* rows, int64_t num_rows, double* sums, int64_t count) {
  add_loop(rows, num_rows, sums, count);
}
VH_VERSIONS void add_rows(const BFloat16* rows, int64_t num_rows, float* sums, int64_t count) {
  add_loop(rows, num_rows, sums, count);
}

void add_rounded(const at::Tensor& gradient, const at::Tensor& sums) {
  const int64_t columns = sums.size(1);
  AT_DISPATCH_REDUCED_FLOATING_TYPES(gradient.scalar_type(), "add_rounded", [&] {
    at::parallel_for(0, sums.size(0), kBlockRows, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        add_rounded_row(sums.const_data_ptr<float>() + row * columns,
                        gradient.mutable_data_ptr<scalar_t>() + row * gradient.stride(0), columns);
      }
    });
  });
}

int64_t num_column_sum_blocks(int64_t rows) {
  return std::max<int64_t>((rows + kBlockRows - 1) / kBlockRows, 1);  // so that there are sums to add
}

ColumnSums::ColumnSums(int64_t rows, int64_t columns, at::ScalarType type) : rows_(rows) {
  const MemoryScope scope(MemoryClass::kWorkspaces);
  partial_ = at::zeros({num_column_sum_blocks(rows), columns}, at::TensorOptions(type));
}

Range ColumnSums::block(int64_t index) const {
  return {index * kBlockRows, std::min((index + 1) * kBlockRows, rows_)};
}

void ColumnSums::add_to(const at::Tensor& gradient) const {
  AT_DISPATCH_FLOATING_TYPES(partial_.scalar_type(), "add_column_sums", [&] {
    add_rows(sums<scalar_t>(1), num_blocks() - 1, sums<scalar_t>(0), partial_.size(1));
  });
  gradient.add_(partial_[0]);
}

void add_column_sums(const at::Tensor& gradient, const at::Tensor& dy) {
  if (!dy.is_cpu()) {
    device_add_column_sums(gradient, dy);
  } else if (dy.scalar_type() == at::kHalf) {
    const MemoryScope scope(MemoryClass::kWorkspaces);
    add_column_sums(gradient, dy.to(at::kFloat));
  } else {
    const at::Tensor rows = dy.contiguous();
    AT_DISPATCH_FLOATING_TYPES_AND(at::kBFloat16, dy.scalar_type(), "add_column_sums",
                                   [&] { add_on_host<scalar_t>(gradient, rows); });
  }
}

}  // namespace vit_hybrid::kernels
