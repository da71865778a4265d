// Row loops of attention, compiled for several instruction sets; the program takes the widest at its start.
#include "src/kernels/attention/attention_rows.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>

#include "src/base/error.h"
#include "src/base/instruction_sets.h"
#include "src/kernels/lanes.h"

namespace vit_hybrid::kernels {

namespace {

// exp by 2^n exp(r), |r| <= log(2) / 2, with the Taylor series to the 6th order (the 7th is below 1.3e-7): only
// operations that a compiler turns into vectors.
inline __attribute__((always_inline)) float fast_exp(float x) {
  constexpr float kLog2E = 1.44269504088896341f;
  constexpr float kLn2High = 0.693359375f;  // few digits: n kLn2High is exact
  constexpr float kLn2Low = -2.12194440e-4f;
  constexpr float kRound = 12582912.0f;  // 1.5 2^23: adding it rounds to an integer
  constexpr float kSmallest = -87.0f;    // exp(-87) is the smallest power that is normal
  const float clamped = x < kSmallest ? kSmallest : x;
  const float shifted = clamped * kLog2E + kRound;
  const float n = shifted - kRound;
  const float r = (clamped - n * kLn2High) - n * kLn2Low;
  float p = 1.0f / 720.0f;
  p = p * r + 1.0f / 120.0f;
  p = p * r + 1.0f / 24.0f;
  p = p * r + 1.0f / 6.0f;
  p = p * r + 0.5f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  // The low bits of `shifted` are n: made the exponent of a power of two, by which a NaN stays one.
  const uint32_t power = (std::bit_cast<uint32_t>(shifted) << 23) + std::bit_cast<uint32_t>(1.0f);
  return p * std::bit_cast<float>(power);
}

inline __attribute__((always_inline)) double fast_exp(double x) {
  return std::exp(x);
}

// NaN may be lost: the exponentials find it.
template <class T>
inline __attribute__((always_inline)) T row_max(const T* x, int64_t n) {
  T largest = -std::numeric_limits<T>::infinity();
#pragma omp simd reduction(max : largest)
  for (int64_t i = 0; i < n; ++i) {
    largest = x[i] > largest ? x[i] : largest;
  }
  return largest;
}

template <class T>
inline __attribute__((always_inline)) T exponentials(const T* scores, int64_t n, T scale, T shift, T* weights) {
  T sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < n; ++i) {
    weights[i] = fast_exp(scale * scores[i] - shift);
    sum += weights[i];
  }
  return sum;
}

template <class T>
inline __attribute__((always_inline)) void update_rows(const SoftmaxTile<T>& tile) {
  for (int64_t row = 0; row < tile.queries; ++row) {
    const T* const scores = tile.scores + row * tile.stride;
    const T larger = std::max(tile.maxima[row], tile.scale * row_max(scores, tile.keys));
    tile.corrections[row] = larger == tile.maxima[row] ? T(1) : fast_exp(tile.maxima[row] - larger);
    const T sum = exponentials(scores, tile.keys, tile.scale, larger, tile.weights + row * tile.stride);
    tile.sums[row] = tile.corrections[row] * tile.sums[row] + sum;
    tile.maxima[row] = larger;
  }
}

template <class T>
inline __attribute__((always_inline)) void correct(T* x, int64_t rows, int64_t n, const T* corrections) {
  for (int64_t row = 0; row < rows; ++row) {
    if (corrections[row] != T(1)) {
#pragma omp simd
      for (int64_t i = 0; i < n; ++i) {
        x[row * n + i] *= corrections[row];
      }
    }
  }
}

}  // namespace

VH_VERSIONS void update_softmax(const SoftmaxTile<float>& tile) {
  update_rows(tile);
}

void update_softmax(const SoftmaxTile<double>& tile) {
  update_rows(tile);
}

VH_VERSIONS void correct_rows(float* x, int64_t rows, int64_t n, const float* corrections) {
  correct(x, rows, n, corrections);
}

void correct_rows(double* x, int64_t rows, int64_t n, const double* corrections) {
  correct(x, rows, n, corrections);
}

VH_VERSIONS void add_row(float* x, const float* y, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) {
    x[i] += y[i];
  }
}

void add_row(double* x, const double* y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    x[i] += y[i];
  }
}

VH_VERSIONS void mask_row(float* x, const uint8_t* keep, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) {
    x[i] *= static_cast<float>(keep[i]);
  }
}

void mask_row(double* x, const uint8_t* keep, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    x[i] *= static_cast<double>(keep[i]);
  }
}

VH_VERSIONS void store_row(const float* x, int64_t n, float factor, float* to) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) {
    to[i] = factor * x[i];
  }
}

void store_row(const double* x, int64_t n, double factor, double* to) {
  for (int64_t i = 0; i < n; ++i) {
    to[i] = factor * x[i];
  }
}

VH_VERSIONS float row_product(const float* x, const float* y, int64_t n) {
  float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < n; ++i) {
    sum += x[i] * y[i];
  }
  return sum;
}

double row_product(const double* x, const double* y, int64_t n) {
  return std::inner_product(x, x + n, y, 0.0);
}

namespace {

VH_VERSIONS void differentiate_row(float* s, float* dp, int64_t n, float scale, float logsumexp, float delta) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) {
    const float p = fast_exp(scale * s[i] - logsumexp);
    s[i] = p;
    dp[i] = p * (dp[i] - delta);
  }
}

VH_VERSIONS void differentiate_row(float* s, float* dp, int64_t n, float scale, float logsumexp, float delta,
                                   const uint8_t* keep, float kept_scale) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) {
    const float p = fast_exp(scale * s[i] - logsumexp);
    const float f = kept_scale * static_cast<float>(keep[i]);
    s[i] = f * p;
    dp[i] = p * (f * dp[i] - delta);
  }
}

}  // namespace

void differentiate(const ScoreTile<float>& tile) {
  for (int64_t row = 0; row < tile.queries; ++row) {
    float* const s = tile.scores + row * tile.stride;
    float* const dp = tile.gradients + row * tile.stride;
    if (tile.keep == nullptr) {
      differentiate_row(s, dp, tile.keys, tile.scale, tile.logsumexp[row], tile.delta[row]);
    } else {
      differentiate_row(s, dp, tile.keys, tile.scale, tile.logsumexp[row], tile.delta[row],
                        tile.keep + row * tile.stride, tile.kept_scale);
    }
  }
}

void differentiate(const ScoreTile<double>& tile) {
  for (int64_t i = 0; i < tile.queries * tile.stride; ++i) {
    const int64_t row = i / tile.stride;
    if (i % tile.stride < tile.keys) {
      const double p = std::exp(tile.scale * tile.scores[i] - tile.logsumexp[row]);
      const double f = tile.keep == nullptr ? 1.0 : tile.kept_scale * static_cast<double>(tile.keep[i]);
      tile.scores[i] = f * p;
      tile.gradients[i] = p * (f * tile.gradients[i] - tile.delta[row]);
    }
  }
}

using c10::BFloat16;

#if defined(__x86_64__)

namespace {

constexpr float kLog2E = 1.44269504088896341f;
constexpr int64_t kWidth = 16;  // fp32 numbers of a register

// 2^x where the mask is set, else 0: 2^floor(x) times the polynomial of the 5th order that is nearest to 2^r in [0, 1]
// by relative error (1.5e-7 in fp32). 0 far below the smallest number, NaN for NaN.
VH_BF16_INLINE __m512 exp2(__mmask16 mask, __m512 x) {
  constexpr int kFloor = _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC;
  const __m512 r = _mm512_reduce_ps(x, kFloor);
  __m512 p = _mm512_set1_ps(0.00187757669f);
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.00898933969f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.0558263175f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.240153611f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.693153083f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.99999994f));
  return _mm512_maskz_scalef_ps(mask, p, x);
}

// Both rounded to nearest, ties to even; `low` in the lower half.
VH_BF16_INLINE __m512i to_bf16(__m512 low, __m512 high) {
  return reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(high, low));
}

VH_BF16_INLINE __m512 to_float(__m256i x) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(x), 16));
}

VH_BF16_INLINE __m512 load_bf16(__mmask16 mask, const BFloat16* x) {
  return to_float(_mm256_maskz_loadu_epi16(mask, x));
}

// The mask of dropout for 16 keys.
VH_BF16_INLINE __mmask16 load_keep(const uint8_t* keep) {
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(keep));
  return _mm_test_epi8_mask(bytes, bytes);
}

// Element i of the lower half beside element i of the upper one.
VH_BF16_INLINE __m512i interleaved(__m512i halves) {
  alignas(64) static constexpr uint16_t kOrder[32] = {0, 16, 1, 17, 2,  18, 3,  19, 4,  20, 5,  21, 6,  22, 7,  23,
                                                      8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
  return _mm512_permutexvar_epi16(_mm512_load_si512(kOrder), halves);
}

// Largest of a row; NaN may be lost, the exponentials find it.
VH_BF16_INLINE float row_max(const float* x, int64_t n) {
  const __m512 none = _mm512_set1_ps(-std::numeric_limits<float>::infinity());
  __m512 even = none;
  __m512 odd = none;
  for (int64_t i = 0; i < n; i += 2 * kWidth) {
    even = _mm512_mask_max_ps(even, first_elements(n - i), even, _mm512_loadu_ps(x + i));
    odd = _mm512_mask_max_ps(odd, first_elements(n - i - kWidth), odd, _mm512_loadu_ps(x + i + kWidth));
  }
  return _mm512_reduce_max_ps(_mm512_max_ps(even, odd));
}

// weights <- 2^(factor scores - offset), zeros up to the row's alignment; returns their sum.
VH_BF16_INLINE float exponentials(const float* scores, int64_t n, float factor, float offset, BFloat16* weights) {
  const __m512 factors = _mm512_set1_ps(factor);
  const __m512 offsets = _mm512_set1_ps(offset);
  __m512 even = _mm512_setzero_ps();
  __m512 odd = _mm512_setzero_ps();
  for (int64_t i = 0; i < n; i += 2 * kWidth) {
    const __m512 low = exp2(first_elements(n - i), _mm512_fmsub_ps(_mm512_loadu_ps(scores + i), factors, offsets));
    const __m512 high =
        exp2(first_elements(n - i - kWidth), _mm512_fmsub_ps(_mm512_loadu_ps(scores + i + kWidth), factors, offsets));
    even = _mm512_add_ps(even, low);
    odd = _mm512_add_ps(odd, high);
    _mm512_storeu_si512(weights + i, to_bf16(low, high));
  }
  return _mm512_reduce_add_ps(_mm512_add_ps(even, odd));
}

// What differs between the rows of a tile.
struct ScoreRow {
  const float* scores;
  const float* gradients;
  const uint8_t* keep;
  __m512 shift;
  __m512 delta;
};

struct Differentials {
  __m512 weights;
  __m512 dscores;
};

template <bool kDropout>
VH_BF16_INLINE Differentials differentiate_vector(const ScoreRow& row, int64_t i, __mmask16 mask, __m512 factor,
                                                  __m512 kept_scale) {
  const __m512 p = exp2(mask, _mm512_fmsub_ps(_mm512_loadu_ps(row.scores + i), factor, row.shift));
  const __m512 dp = _mm512_loadu_ps(row.gradients + i);
  if constexpr (kDropout) {
    const __mmask16 keep = load_keep(row.keep + i);
    const __m512 kept = _mm512_maskz_mul_ps(keep, dp, kept_scale);
    return {_mm512_maskz_mul_ps(keep, p, kept_scale), _mm512_maskz_mul_ps(mask, p, _mm512_sub_ps(kept, row.delta))};
  } else {
    return {p, _mm512_maskz_mul_ps(mask, p, _mm512_sub_ps(dp, row.delta))};
  }
}

VH_BF16_INLINE ScoreRow row_of(const ScoreTile<BFloat16>& tile, int64_t row) {
  return {tile.scores + row * tile.stride, tile.gradients + row * tile.stride,
          tile.keep == nullptr ? nullptr : tile.keep + row * tile.stride, _mm512_set1_ps(tile.logsumexp[row] * kLog2E),
          _mm512_set1_ps(tile.delta[row])};
}

// Two queries: their weights and gradients lie side by side in the right operands.
template <bool kDropout>
VH_AVX512_BF16 void differentiate_pair(const ScoreTile<BFloat16>& tile, int64_t first) {
  const bool whole = first + 1 < tile.queries;
  const ScoreRow row0 = row_of(tile, first);
  const ScoreRow row1 = row_of(tile, whole ? first + 1 : first);
  const __m512 factor = _mm512_set1_ps(tile.scale * kLog2E);
  const __m512 kept_scale = _mm512_set1_ps(tile.kept_scale);
  BFloat16* const weights = tile.weights + first * tile.stride;
  BFloat16* const left = tile.dscores + first * tile.stride;
  BFloat16* const right = tile.dscores_right + first * tile.stride;
  for (int64_t i = 0; i < tile.keys; i += kWidth) {
    const __mmask16 mask = first_elements(tile.keys - i);
    const Differentials d0 = differentiate_vector<kDropout>(row0, i, mask, factor, kept_scale);
    const Differentials d1 = differentiate_vector<kDropout>(row1, i, whole ? mask : 0, factor, kept_scale);
    _mm512_storeu_si512(weights + 2 * i, interleaved(to_bf16(d0.weights, d1.weights)));
    const __m512i dscores = to_bf16(d0.dscores, d1.dscores);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(left + i), _mm512_castsi512_si256(dscores));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(left + tile.stride + i), _mm512_extracti64x4_epi64(dscores, 1));
    _mm512_storeu_si512(right + 2 * i, interleaved(dscores));
  }
}

}  // namespace

VH_AVX512_BF16 void update_softmax(const SoftmaxTile<BFloat16>& tile) {
  const float factor = tile.scale * kLog2E;
  for (int64_t row = 0; row < tile.queries; ++row) {
    const float* const scores = tile.scores + row * tile.stride;
    const float larger = std::max(tile.maxima[row], tile.scale * row_max(scores, tile.keys));
    tile.corrections[row] = larger == tile.maxima[row] ? 1.0f : std::exp2((tile.maxima[row] - larger) * kLog2E);
    const float sum = exponentials(scores, tile.keys, factor, larger * kLog2E, tile.weights + row * tile.stride);
    tile.sums[row] = tile.corrections[row] * tile.sums[row] + sum;
    tile.maxima[row] = larger;
  }
}

VH_AVX512_BF16 void mask_row(BFloat16* x, const uint8_t* keep, int64_t n) {
  for (int64_t i = 0; i < n; i += 2 * kWidth) {
    const __m256i bytes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(keep + i));
    const __m512i all = _mm512_loadu_si512(x + i);
    _mm512_storeu_si512(x + i, _mm512_maskz_mov_epi16(_mm256_test_epi8_mask(bytes, bytes), all));
  }
}

VH_AVX512_BF16 void store_row(const float* x, int64_t n, float factor, BFloat16* to) {
  for (int64_t i = 0; i < n; i += kWidth) {
    const __mmask16 mask = first_elements(n - i);
    const __m512 value = _mm512_mul_ps(_mm512_maskz_loadu_ps(mask, x + i), _mm512_set1_ps(factor));
    _mm256_mask_storeu_epi16(to + i, mask, reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(value)));
  }
}

VH_AVX512_BF16 float row_product(const BFloat16* x, const BFloat16* y, int64_t n) {
  __m512 sum = _mm512_setzero_ps();
  for (int64_t i = 0; i < n; i += kWidth) {
    const __mmask16 mask = first_elements(n - i);
    sum = _mm512_fmadd_ps(load_bf16(mask, x + i), load_bf16(mask, y + i), sum);
  }
  return _mm512_reduce_add_ps(sum);
}

void differentiate(const ScoreTile<BFloat16>& tile) {
  for (int64_t row = 0; row < tile.queries; row += 2) {
    if (tile.keep == nullptr) {
      differentiate_pair<false>(tile, row);
    } else {
      differentiate_pair<true>(tile, row);
    }
  }
}

#else

namespace {

[[noreturn]] void refuse() {
  fail_invariant("has_bf16_block_kernel()", __FILE__, __LINE__, "these loops exist for x86-64 only");
}

}  // namespace

void update_softmax(const SoftmaxTile<BFloat16>&) {
  refuse();
}
void mask_row(BFloat16*, const uint8_t*, int64_t) {
  refuse();
}
void store_row(const float*, int64_t, float, BFloat16*) {
  refuse();
}
float row_product(const BFloat16*, const BFloat16*, int64_t) {
  refuse();
}
void differentiate(const ScoreTile<BFloat16>&) {
  refuse();
}

#endif

}  // namespace vit_hybrid::kernels
