// The loops over rows beside products: bias, GELU, rounding, and sums over rows, by blocks, then in order. Compiled for
// several instruction sets; the program takes the widest at its start.
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
#include "src/kernels/gelu_bf16.h"
#include "src/kernels/gemm/device_products.h"
#include "src/kernels/half_conversion.h"

namespace vit_hybrid::kernels {

namespace {

using c10::BFloat16;
using c10::Half;

#define VH_INLINE inline __attribute__((always_inline))

// Phi(z) - 1/2 and (z Phi(z))' - 1/2 are odd: z p(t), t = 2 z^2 / limit^2 - 1, up to the limit. Beyond it Phi is 0 and
// 1 but for 1e-7, the derivative but for 4e-7. The argument in [-1, 1] keeps rounding errors as small as one
// operation's.
template <int terms>
struct OddCurve {
  float limit;
  float coefficients[terms];  // of p, lowest first
};

// Nearly the p of the smallest largest error of z p(t) up to the limit: 1.3e-8 in both.
constexpr OddCurve<15> kErfDistribution = {
    5.2f,
    {0.1359499841928482f, -0.06774380803108215f, 0.05002611130475998f, -0.03992539644241333f, 0.0319623239338398f,
     -0.024763450026512146f, 0.018133923411369324f, -0.01235335972160101f, 0.008010090328752995f,
     -0.005067367572337389f, 0.0026624419260770082f, -0.0009785158326849341f, 0.0006007602205500007f,
     -0.0005622903117910028f, 0.00020238966681063175f}};
constexpr OddCurve<18> kErfDerivative = {
    5.6f,
    {0.1264166533946991f, -0.06428253650665283f, 0.051806747913360596f, -0.05096065625548363f, 0.05671318620443344f,
     -0.06505841761827469f, 0.07138035446405411f, -0.07257270812988281f, 0.0676792562007904f, -0.05581976845860481f,
     0.04019000381231308f, -0.029832687228918076f, 0.023568078875541687f, -0.012050420045852661f, 0.002110502915456891f,
     -0.0023203613236546516f, 0.0037203356623649597f, -0.00140180136077106f}};
// The same with the distribution's stand-in, whose logarithm falls with z^3, so that the limits are nearer, while poles
// beside the axis ask for more terms: 2.5e-8 and 8e-8.
constexpr OddCurve<17> kTanhDistribution = {
    4.9f,
    {0.1442486196756363f, -0.07169951498508453f, 0.052373290061950684f, -0.04064842686057091f, 0.03091731108725071f,
     -0.022258538752794266f, 0.014911936596035957f, -0.009104921482503414f, 0.005468692630529404f,
     -0.004060043022036552f, 0.002296583028510213f, 0.0004149972810409963f, -0.00031005984055809677f,
     -0.0016090659191831946f, 0.0009559026802890003f, 0.0005147273768670857f, -0.0003706970310304314f}};
constexpr OddCurve<20> kTanhDerivative = {
    5.2f, {0.13632582128047943f,  -0.0705811008810997f,  0.06044517457485199f,   -0.06469950079917908f,
           0.07483238726854324f,  -0.0821044072508812f,  0.07947631180286407f,   -0.06851743906736374f,
           0.057806629687547684f, -0.03984681889414787f, 0.00640517845749855f,   -0.006290452554821968f,
           0.05201992020010948f,  -0.03185977786779404f, -0.047275662422180176f, 0.029810847714543343f,
           0.038432810455560684f, -0.02478763647377491f, -0.01144919078797102f,  0.008010828867554665f}};

// The terms first, first + 4, first + 8, ... of a polynomial, in powers of t^4.
template <int terms>
VH_INLINE float quarter(const float (&coefficients)[terms], int first, float t4) {
  const int last = first + (terms - 1 - first) / 4 * 4;
  float sum = coefficients[last];
#pragma GCC unroll 8
  for (int i = last - 4; i >= 0; i -= 4) {
    sum = sum * t4 + coefficients[i];
  }
  return sum;
}

// 1/2 + z p(t), and 0 below the lower limit; a NaN stays one. Four short sums instead of a long one: their steps
// overlap. No branches, which compilers would not turn into vectors.
template <int terms>
VH_INLINE float sigmoidal(float z, const OddCurve<terms>& curve) {
  const auto& [limit, coefficients] = curve;
  const float bounded = z > limit ? limit : z;
  const float t = bounded * bounded * (2.0f / (limit * limit)) - 1.0f;
  const float t2 = t * t;
  const float t4 = t2 * t2;
  const float low = quarter(coefficients, 0, t4) + t * quarter(coefficients, 1, t4);
  const float high = quarter(coefficients, 2, t4) + t * quarter(coefficients, 3, t4);
  const float value = 0.5f + bounded * (low + t2 * high);
  const uint32_t mask = z < -limit ? 0U : ~0U;
  return std::bit_cast<float>(std::bit_cast<uint32_t>(value) & mask);
}

// Of kTanh: what tanh is applied to, and its derivative.
constexpr double kSqrt2OverPi = M_2_SQRTPI * M_SQRT1_2;
constexpr double kCubic = 0.044715;

double distribution(double z, GeluKind kind) {
  return kind == GeluKind::kErf ? 0.5 * std::erfc(-z * M_SQRT1_2)
                                : 0.5 + 0.5 * std::tanh(kSqrt2OverPi * (z + kCubic * z * z * z));
}

double density(double z, GeluKind kind) {
  if (kind == GeluKind::kErf) {
    return std::exp(-0.5 * z * z) * (0.5 * M_2_SQRTPI * M_SQRT1_2);
  }
  const double hyperbolic = std::cosh(kSqrt2OverPi * (z + kCubic * z * z * z));
  return 0.5 * kSqrt2OverPi * (1.0 + 3.0 * kCubic * z * z) / (hyperbolic * hyperbolic);
}

template <int terms>
VH_INLINE void gelu_loop(const float* z, float* y, int64_t count, const OddCurve<terms>& curve) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) {
    y[i] = z[i] * sigmoidal(z[i], curve);
  }
}

template <int terms>
VH_INLINE void gelu_backward_loop(const float* dy, const float* z, float* dz, int64_t num_rows, float* sums,
                                  int64_t count, const OddCurve<terms>& curve) {
  for (int64_t row = 0; row < num_rows; ++row, dy += count, z += count, dz += count) {
#pragma omp simd
    for (int64_t i = 0; i < count; ++i) {
      const float gradient = dy[i] * sigmoidal(z[i], curve);
      sums[i] += gradient;
      dz[i] = gradient;
    }
  }
}

template <int terms>
VH_INLINE void store_gelu_loop(const float* sums, const float* bias, float* y, int64_t count,
                               const OddCurve<terms>& curve) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) {
    const float z = sums[i] + bias[i];
    y[i] = z * sigmoidal(z, curve);
  }
}

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

// Half-length rows by way of the fp32 loops, this many elements at a time: they stay in the first-level cache.
constexpr int64_t kChunk = 512;

template <class T>
void gelu_row_in_fp32(const T* z, T* y, int64_t count, GeluKind kind) {
  for (int64_t begin = 0; begin < count; begin += kChunk) {
    const int64_t size = std::min(kChunk, count - begin);
    float row[kChunk];
    convert(z + begin, row, size);
    gelu_row(row, row, size, kind);
    convert(row, y + begin, size);
  }
}

template <class T>
void gelu_backward_rows_in_fp32(const T* dy, const T* z, T* dz, int64_t num_rows, float* sums, int64_t count,
                                GeluKind kind) {
  for (int64_t row = 0; row < num_rows; ++row, dy += count, z += count, dz += count) {
    for (int64_t begin = 0; begin < count; begin += kChunk) {
      const int64_t size = std::min(kChunk, count - begin);
      float gradient[kChunk], numbers[kChunk];
      convert(dy + begin, gradient, size);
      convert(z + begin, numbers, size);
      gelu_backward_rows(gradient, numbers, gradient, 1, sums + begin, size, kind);
      convert(gradient, dz + begin, size);
    }
  }
}

constexpr int64_t kBlockRows = 64;

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

VH_VERSIONS void gelu_row(const float* z, float* y, int64_t count, GeluKind kind) {
  if (kind == GeluKind::kErf) {
    gelu_loop(z, y, count, kErfDistribution);
  } else {
    gelu_loop(z, y, count, kTanhDistribution);
  }
}
void gelu_row(const double* z, double* y, int64_t count, GeluKind kind) {
  for (int64_t i = 0; i < count; ++i) {
    y[i] = z[i] * distribution(z[i], kind);
  }
}
void gelu_row(const BFloat16* z, BFloat16* y, int64_t count, GeluKind kind) {
  has_avx512_bf16() ? bf16_unit::gelu_row(z, y, count, kind) : gelu_row_in_fp32(z, y, count, kind);
}
void gelu_row(const Half* z, Half* y, int64_t count, GeluKind kind) {
  gelu_row_in_fp32(z, y, count, kind);
}

VH_VERSIONS void gelu_backward_rows(const float* dy, const float* z, float* dz, int64_t num_rows, float* sums,
                                    int64_t count, GeluKind kind) {
  if (kind == GeluKind::kErf) {
    gelu_backward_loop(dy, z, dz, num_rows, sums, count, kErfDerivative);
  } else {
    gelu_backward_loop(dy, z, dz, num_rows, sums, count, kTanhDerivative);
  }
}
void gelu_backward_rows(const double* dy, const double* z, double* dz, int64_t num_rows, double* sums, int64_t count,
                        GeluKind kind) {
  for (int64_t row = 0; row < num_rows; ++row, dy += count, z += count, dz += count) {
    for (int64_t i = 0; i < count; ++i) {
      dz[i] = dy[i] * (distribution(z[i], kind) + z[i] * density(z[i], kind));
      sums[i] += dz[i];
    }
  }
}
void gelu_backward_rows(const BFloat16* dy, const BFloat16* z, BFloat16* dz, int64_t num_rows, float* sums,
                        int64_t count, GeluKind kind) {
  has_avx512_bf16() ? bf16_unit::gelu_backward_rows(dy, z, dz, num_rows, sums, count, kind)
                    : gelu_backward_rows_in_fp32(dy, z, dz, num_rows, sums, count, kind);
}
void gelu_backward_rows(const Half* dy, const Half* z, Half* dz, int64_t num_rows, float* sums, int64_t count,
                        GeluKind kind) {
  gelu_backward_rows_in_fp32(dy, z, dz, num_rows, sums, count, kind);
}

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

VH_VERSIONS void store_gelu_row(const float* sums, const float* bias, float* y, int64_t count, GeluKind kind) {
  if (kind == GeluKind::kErf) {
    store_gelu_loop(sums, bias, y, count, kErfDistribution);
  } else {
    store_gelu_loop(sums, bias, y, count, kTanhDistribution);
  }
}
void store_gelu_row(const float* sums, const float* bias, BFloat16* y, int64_t count, GeluKind kind) {
  bf16_unit::store_gelu_row(sums, bias, y, count, kind);
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
