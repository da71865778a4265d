// Row loops of attention, compiled for several instruction sets; the program takes the widest at its start.
#include "src/kernels/attention/attention_rows.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>

#include "src/base/instruction_sets.h"

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

}  // namespace vit_hybrid::kernels
