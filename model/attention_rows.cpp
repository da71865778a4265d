// Row loops of attention, compiled for several instruction sets; the program takes the widest at its start.
#include "model/attention_rows.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "src/base/instruction_sets.h"

namespace vit_hybrid::model {

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
  // The low bits of `shifted` are n: moved into the exponent of p.
  const auto exponent = static_cast<uint32_t>(std::bit_cast<int32_t>(shifted)) << 23;
  return std::bit_cast<float>(std::bit_cast<uint32_t>(p) + exponent);
}

}  // namespace

VH_VERSIONS float row_max(const float* x, int64_t n) {
  float largest = -std::numeric_limits<float>::infinity();
#pragma omp simd reduction(max : largest)
  for (int64_t i = 0; i < n; ++i) {
    largest = x[i] > largest ? x[i] : largest;
  }
  return largest;
}

double row_max(const double* x, int64_t n) {
  return *std::max_element(x, x + n);
}

VH_VERSIONS float exponentials(float* x, int64_t n, float scale, float shift) {
  float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < n; ++i) {
    x[i] = fast_exp(scale * x[i] - shift);
    sum += x[i];
  }
  return sum;
}

double exponentials(double* x, int64_t n, double scale, double shift) {
  double sum = 0.0;
  for (int64_t i = 0; i < n; ++i) {
    x[i] = std::exp(scale * x[i] - shift);
    sum += x[i];
  }
  return sum;
}

VH_VERSIONS void scale_row(float* x, int64_t n, float factor) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) {
    x[i] *= factor;
  }
}

void scale_row(double* x, int64_t n, double factor) {
  for (int64_t i = 0; i < n; ++i) {
    x[i] *= factor;
  }
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

VH_VERSIONS void backward_row(float* s, float* dp, const float* logsumexp, const float* delta, int64_t n, float scale) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) {
    const float p = fast_exp(scale * s[i] - logsumexp[i]);
    s[i] = p;
    dp[i] = scale * p * (dp[i] - delta[i]);
  }
}

void backward_row(double* s, double* dp, const double* logsumexp, const double* delta, int64_t n, double scale) {
  for (int64_t i = 0; i < n; ++i) {
    const double p = std::exp(scale * s[i] - logsumexp[i]);
    s[i] = p;
    dp[i] = scale * p * (dp[i] - delta[i]);
  }
}

VH_VERSIONS void backward_row(float* s, float* dp, const float* logsumexp, const float* delta, const uint8_t* keep,
                              float kept_scale, int64_t n, float scale) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) {
    const float p = fast_exp(scale * s[i] - logsumexp[i]);
    const float f = kept_scale * static_cast<float>(keep[i]);
    s[i] = f * p;
    dp[i] = scale * p * (f * dp[i] - delta[i]);
  }
}

void backward_row(double* s, double* dp, const double* logsumexp, const double* delta, const uint8_t* keep,
                  double kept_scale, int64_t n, double scale) {
  for (int64_t i = 0; i < n; ++i) {
    const double p = std::exp(scale * s[i] - logsumexp[i]);
    const double f = kept_scale * static_cast<double>(keep[i]);
    s[i] = f * p;
    dp[i] = scale * p * (f * dp[i] - delta[i]);
  }
}

}  // namespace vit_hybrid::model
