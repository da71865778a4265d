// GELU, forward and backward: loops over rows of the host, by polynomials in fp32, compiled for several instruction
// sets of which the program takes the widest at its start, and shorter ones by the instructions of AVX512-BF16
// (bf16_unit); tensors in rows that stay in the first-level cache between reading and writing.
#include "src/kernels/gelu.h"

#include <ATen/Dispatch.h>
#include <ATen/OpMathType.h>
#include <ATen/Parallel.h>
#include <ATen/ops/empty_like.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "src/base/error.h"
#include "src/base/instruction_sets.h"
#include "src/kernels/gemm/epilogue.h"
#include "src/kernels/half_conversion.h"
#include "src/kernels/lanes.h"

namespace vit_hybrid::kernels {

using c10::BFloat16;
using c10::Half;

namespace {

// bf16 by AVX512-BF16, only where has_avx512_bf16().
//
// Four registers take each step together. The nine multiplications of a register wait for each other, and a processor
// looks only so far ahead for others: one by one, registers took 5.9 cycles each (Zen 5), four by four 5.1, where two
// multipliers need 4.5.
namespace bf16_unit {

#if defined(__x86_64__)

// Beyond its bend GELU is max(z, 0), and its derivative 0 or 1. What is between, with a = |z|, is
//
//   z Phi(z)    = max(z, 0) - a Phi(-a)
//   (z Phi(z))' = w(a) for z < 0, 1 - w(a) for z > 0;  w(a) = Phi(-a) - a phi(a)
//
// Phi(-a) and w(a) / (r - a), where w(r) = 0, fall through nine powers of ten before they no longer matter; it takes
// long polynomials to follow them. Their eighth roots fall nearly along a line. p and q are the polynomials for which
// the largest error of p(a)^8 a and of (r - a) q(a)^8, divided by max(2^-11 |exact|, 1e-5), is smallest over
// 0 <= a <= end, computed in fp32, where half a unit of bf16 is 4 to 8. They are minimax fits of the eighth roots, an
// error e of p making one of 8 p^7 e in its power.

template <GeluKind kind>
struct Tails;

template <>
struct Tails<GeluKind::kErf> {
  static constexpr float kEnd = 6.0f;  // a is bounded by it: both tails are below 1e-10 there, and not quite 0
  // Of p and of q, lowest first: errors of 0.11 and 0.27.
  static constexpr float kRoot[] = {0.9169962f,     -0.09140655f,  -0.031907484f,
                                    -0.0009584428f, 0.0018896727f, -0.00018509332f};
  static constexpr float kSlopeRoot[] = {0.9502814f,    -0.031354524f, -0.046018228f,
                                         -0.002857141f, 0.0026195054f, -0.00023660147f};
  static constexpr float kSlopeZero = 0.75179154f;  // r
};

template <>
struct Tails<GeluKind::kTanh> {
  // The tails fall faster, and ask for one term more: errors of 0.19 and 0.41. At the end the roots are held near 0.
  static constexpr float kEnd = 5.5f;
  static constexpr float kRoot[] = {0.91698456f,    -0.091222115f,   -0.0324919f,   -0.00029103854f,
                                    0.00182255357f, -0.00030285408f, 2.0477992e-05f};
  static constexpr float kSlopeRoot[] = {0.9501669f,    -0.03134488f,   -0.04648f,   -0.002977018f,
                                         0.0034974241f, -0.0006525914f, 4.87088e-05f};
  static constexpr float kSlopeZero = 0.75246143f;
};

#define VH_EACH _Pragma("GCC unroll 4") for (int k = 0; k < n; ++k)

constexpr int kWidth = 16;  // fp32 numbers of a register
constexpr int kGroup = 4;   // registers

VH_BF16_INLINE __m512 constant(float value) {
  return _mm512_set1_ps(value);
}

VH_BF16_INLINE __m512i bits(__m512 x) {
  return _mm512_castps_si512(x);
}

VH_BF16_INLINE __m512 float_of(__m512i bits) {
  return _mm512_castsi512_ps(bits);
}

// a = min(|z|, end); NaN stays NaN: the minimum is the second operand then.
template <int n>
VH_BF16_INLINE void bound(const __m512 (&z)[n], float end, __m512 (&a)[n]) {
  VH_EACH a[k] = _mm512_min_ps(constant(end), _mm512_abs_ps(z[k]));
}

// The fourth power of the polynomial in a.
template <int terms, int n>
VH_BF16_INLINE void fourth_power(const float (&coefficients)[terms], const __m512 (&a)[n], __m512 (&power)[n]) {
  VH_EACH power[k] = _mm512_fmadd_ps(constant(coefficients[terms - 1]), a[k], constant(coefficients[terms - 2]));
#pragma GCC unroll 5
  for (int i = terms - 3; i >= 0; --i) {
    VH_EACH power[k] = _mm512_fmadd_ps(power[k], a[k], constant(coefficients[i]));
  }
  VH_EACH power[k] = _mm512_mul_ps(power[k], power[k]);
  VH_EACH power[k] = _mm512_mul_ps(power[k], power[k]);
}

// z <- z Phi(z).
template <GeluKind kind, int n>
VH_BF16_INLINE void gelu(__m512 (&z)[n]) {
  __m512 a[n], power[n];
  bound(z, Tails<kind>::kEnd, a);
  fourth_power(Tails<kind>::kRoot, a, power);
  VH_EACH a[k] = _mm512_mul_ps(a[k], power[k]);
  VH_EACH z[k] = _mm512_fnmadd_ps(a[k], power[k], _mm512_max_ps(_mm512_setzero_ps(), z[k]));
}

// z <- Phi(z) + z phi(z). The tail is taken from 1 where z has no sign; all that is known before its power is.
template <GeluKind kind, int n>
VH_BF16_INLINE void gelu_slope(__m512 (&z)[n]) {
  constexpr int kXorWithoutSign = 0xD2;  // of a, z and the sign bit: a ^ (~z & sign)
  const __m512i sign = _mm512_set1_epi32(INT32_MIN);
  __m512 a[n], power[n];
  bound(z, Tails<kind>::kEnd, a);
  fourth_power(Tails<kind>::kSlopeRoot, a, power);
  VH_EACH a[k] = _mm512_sub_ps(constant(Tails<kind>::kSlopeZero), a[k]);
  VH_EACH a[k] = float_of(_mm512_ternarylogic_epi32(bits(a[k]), bits(z[k]), sign, kXorWithoutSign));
  VH_EACH a[k] = _mm512_mul_ps(a[k], power[k]);
  VH_EACH z[k] = float_of(_mm512_andnot_si512(_mm512_srai_epi32(bits(z[k]), 31), bits(constant(1.0f))));
  VH_EACH z[k] = _mm512_fmadd_ps(a[k], power[k], z[k]);
}

// Sixteen of the numbers, the first ones or the last: each word to the upper half of an element, zeros beside it.
VH_BF16_INLINE __m512 widen(__m512i words, int half) {
  alignas(64) static constexpr uint16_t kOrders[2][32] = {
      {0, 0, 0, 1, 0, 2, 0, 3, 0, 4, 0, 5, 0, 6, 0, 7, 0, 8, 0, 9, 0, 10, 0, 11, 0, 12, 0, 13, 0, 14, 0, 15},
      {0, 16, 0, 17, 0, 18, 0, 19, 0, 20, 0, 21, 0, 22, 0, 23, 0, 24, 0, 25, 0, 26, 0, 27, 0, 28, 0, 29, 0, 30, 0, 31}};
  return float_of(_mm512_maskz_permutexvar_epi16(0xAAAAAAAAU, _mm512_load_si512(kOrders[half]), words));
}

// Pairs of registers, each pair `stride` elements behind the one before.
template <int n>
VH_BF16_INLINE void load(const BFloat16* from, int64_t stride, __m512 (&x)[n]) {
  VH_EACH x[k] = widen(_mm512_loadu_si512(from + k / 2 * stride), k % 2);
}

template <int n>
VH_BF16_INLINE void store(const __m512 (&x)[n], BFloat16* to, int64_t stride) {
#pragma GCC unroll 2
  for (int k = 0; k < n; k += 2) {
    _mm512_storeu_si512(to + k / 2 * stride, reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(x[k + 1], x[k])));
  }
}

VH_BF16_INLINE __m512 load(const BFloat16* from, __mmask16 mask) {
  return widen(_mm512_castsi256_si512(_mm256_maskz_loadu_epi16(mask, from)), 0);
}

VH_BF16_INLINE void store(__m512 x, BFloat16* to, __mmask16 mask) {
  _mm256_mask_storeu_epi16(to, mask, reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(x)));
}

// Rows one after the other into the same sums, which pass memory once for all of them. Two registers of each of two
// rows (if there are two) are taken together.
template <GeluKind kind, int rows>
VH_BF16_INLINE void differentiate(const BFloat16* dy, const BFloat16* z, BFloat16* dz, float* sums, int64_t count) {
  constexpr int n = rows == 1 ? 2 : kGroup;
  int64_t i = 0;
  for (; i + 2 * kWidth <= count; i += 2 * kWidth) {
    __m512 sum[2] = {_mm512_loadu_ps(sums + i), _mm512_loadu_ps(sums + i + kWidth)};
#pragma GCC unroll 2
    for (int row = 0; row < rows; row += n / 2) {
      const int64_t first = row * count + i;
      __m512 x[n], gradient[n];
      load(z + first, count, x);
      gelu_slope<kind>(x);
      load(dy + first, count, gradient);
      VH_EACH x[k] = _mm512_mul_ps(gradient[k], x[k]);
      VH_EACH sum[k % 2] = _mm512_add_ps(sum[k % 2], x[k]);
      store(x, dz + first, count);
    }
    _mm512_storeu_ps(sums + i, sum[0]);
    _mm512_storeu_ps(sums + i + kWidth, sum[1]);
  }
  for (; i < count; i += kWidth) {
    const __mmask16 mask = first_elements(count - i);
    __m512 sum = _mm512_maskz_loadu_ps(mask, sums + i);
    for (int64_t at = i; at < rows * count; at += count) {
      __m512 x[] = {load(z + at, mask)};
      gelu_slope<kind>(x);
      x[0] = _mm512_mul_ps(load(dy + at, mask), x[0]);
      sum = _mm512_add_ps(sum, x[0]);
      store(x[0], dz + at, mask);
    }
    _mm512_mask_storeu_ps(sums + i, mask, sum);
  }
}

template <GeluKind kind>
VH_BF16_INLINE void value_row(const BFloat16* z, BFloat16* y, int64_t count) {
  int64_t i = 0;
  for (; i + kGroup * kWidth <= count; i += kGroup * kWidth) {
    __m512 x[kGroup];
    load(z + i, 2 * kWidth, x);
    gelu<kind>(x);
    store(x, y + i, 2 * kWidth);
  }
  for (; i < count; i += kWidth) {
    const __mmask16 mask = first_elements(count - i);
    __m512 x[] = {load(z + i, mask)};
    gelu<kind>(x);
    store(x[0], y + i, mask);
  }
}

template <GeluKind kind>
VH_BF16_INLINE void backward_rows(const BFloat16* dy, const BFloat16* z, BFloat16* dz, int64_t num_rows, float* sums,
                                  int64_t count) {
  int64_t row = 0;
  for (; row + 4 <= num_rows; row += 4) {
    differentiate<kind, 4>(dy + row * count, z + row * count, dz + row * count, sums, count);
  }
  for (; row < num_rows; ++row) {
    differentiate<kind, 1>(dy + row * count, z + row * count, dz + row * count, sums, count);
  }
}

template <GeluKind kind>
VH_BF16_INLINE void store_row(const float* sums, const float* bias, BFloat16* y, int64_t count) {
  constexpr int n = kGroup;
  int64_t i = 0;
  for (; i + n * kWidth <= count; i += n * kWidth) {
    __m512 x[n];
    VH_EACH x[k] = _mm512_add_ps(_mm512_loadu_ps(sums + i + k * kWidth), _mm512_loadu_ps(bias + i + k * kWidth));
    gelu<kind>(x);
    store(x, y + i, 2 * kWidth);
  }
  for (; i < count; i += kWidth) {
    const __mmask16 mask = first_elements(count - i);
    __m512 x[] = {_mm512_add_ps(_mm512_maskz_loadu_ps(mask, sums + i), _mm512_maskz_loadu_ps(mask, bias + i))};
    gelu<kind>(x);
    store(x[0], y + i, mask);
  }
}

VH_AVX512_BF16 void gelu_row(const BFloat16* z, BFloat16* y, int64_t count, GeluKind kind) {
  kind == GeluKind::kErf ? value_row<GeluKind::kErf>(z, y, count) : value_row<GeluKind::kTanh>(z, y, count);
}

VH_AVX512_BF16 void gelu_backward_rows(const BFloat16* dy, const BFloat16* z, BFloat16* dz, int64_t num_rows,
                                       float* sums, int64_t count, GeluKind kind) {
  kind == GeluKind::kErf ? backward_rows<GeluKind::kErf>(dy, z, dz, num_rows, sums, count)
                         : backward_rows<GeluKind::kTanh>(dy, z, dz, num_rows, sums, count);
}

VH_AVX512_BF16 void store_gelu_row(const float* sums, const float* bias, BFloat16* y, int64_t count, GeluKind kind) {
  kind == GeluKind::kErf ? store_row<GeluKind::kErf>(sums, bias, y, count)
                         : store_row<GeluKind::kTanh>(sums, bias, y, count);
}

#undef VH_EACH

#else

[[noreturn]] void refuse() {
  fail_invariant("has_avx512_bf16()", __FILE__, __LINE__, "these loops exist for x86-64 only");
}

void gelu_row(const BFloat16* /*z*/, BFloat16* /*y*/, int64_t /*count*/, GeluKind /*kind*/) {
  refuse();
}

void gelu_backward_rows(const BFloat16* /*dy*/, const BFloat16* /*z*/, BFloat16* /*dz*/, int64_t /*num_rows*/,
                        float* /*sums*/, int64_t /*count*/, GeluKind /*kind*/) {
  refuse();
}

void store_gelu_row(const float* /*sums*/, const float* /*bias*/, BFloat16* /*y*/, int64_t /*count*/,
                    GeluKind /*kind*/) {
  refuse();
}

#endif

}  // namespace bf16_unit

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

namespace {

constexpr int64_t kElementsPerTask = 32768;

template <class T>
void gelu_on_host(const at::Tensor& z, GeluKind kind, const at::Tensor& y) {
  at::parallel_for(0, z.numel(), kElementsPerTask, [&](int64_t begin, int64_t end) {
    gelu_row(z.const_data_ptr<T>() + begin, y.mutable_data_ptr<T>() + begin, end - begin, kind);
  });
}

template <class T>
void backward_on_host(const at::Tensor& dy, const at::Tensor& z, GeluKind kind, const at::Tensor& dz,
                      const ColumnSums& sums) {
  using Sum = at::opmath_type<T>;
  const int64_t columns = z.size(1);
  at::parallel_for(0, sums.num_blocks(), 1, [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block) {
      const Range rows = sums.block(block);
      const int64_t first = rows.begin * columns;
      gelu_backward_rows(dy.const_data_ptr<T>() + first, z.const_data_ptr<T>() + first,
                         dz.mutable_data_ptr<T>() + first, rows.size(), sums.sums<Sum>(block), columns, kind);
    }
  });
}

}  // namespace

at::Tensor gelu(const at::Tensor& z, GeluKind kind) {
  if (!z.is_cpu()) {
    return device_gelu(z, kind);
  }
  const at::Tensor in = z.contiguous();
  at::Tensor y = at::empty_like(in);
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kBFloat16, at::kHalf, z.scalar_type(), "gelu",
                                  [&] { gelu_on_host<scalar_t>(in, kind, y); });
  return y;
}

at::Tensor gelu_backward(const at::Tensor& dy, const at::Tensor& z, GeluKind kind, const at::Tensor& bias_gradient) {
  if (!dy.is_cpu()) {
    return device_gelu_backward(dy, z, kind, bias_gradient);
  }
  at::Tensor dz = at::empty_like(dy);
  const ColumnSums sums(dy.size(0), dy.size(1), at::toOpMathType(dy.scalar_type()));
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kBFloat16, at::kHalf, dy.scalar_type(), "gelu_backward",
                                  [&] { backward_on_host<scalar_t>(dy, z, kind, dz, sums); });
  if (bias_gradient.defined()) {
    sums.add_to(bias_gradient);
  }
  return dz;
}

}  // namespace vit_hybrid::kernels
