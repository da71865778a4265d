// The optimizers' loops over flat arrays of the host, in vectors. Compiled with -fno-math-errno, so that square roots
// vectorise, and without contraction.
#include "parallel/zero/rules/update_loops.h"

#include <algorithm>
#include <array>

#include "src/base/instruction_sets.h"

namespace vit_hybrid::zero {

namespace {

// The loops below are made part of each version of the functions at the end.
#define VH_IN_VERSIONS inline __attribute__((always_inline))

constexpr int64_t kChunk = 1024;  // updates that are kept for their sum: they stay in the first-level cache

template <class T>
VH_IN_VERSIONS double square_all(const T* values, int64_t count) {
  constexpr int64_t kPartialSums = 16;  // independent sums, so that additions need not wait for each other
  std::array<double, kPartialSums> sums{};
  const int64_t whole = count - count % kPartialSums;
  for (int64_t i = 0; i < whole; i += kPartialSums) {
#pragma omp simd
    for (int64_t part = 0; part < kPartialSums; ++part) {
      const double value = values[i + part];
      sums[static_cast<size_t>(part)] += value * value;
    }
  }
  double sum = 0;
  for (const double part : sums) {
    sum += part;
  }
  for (int64_t i = whole; i < count; ++i) {
    sum += static_cast<double>(values[i]) * values[i];
  }
  return sum;
}

// The moments and updates of a chunk.
template <class T>
VH_IN_VERSIONS void lamb_chunk(const T* __restrict weights, T* __restrict exp_avg, T* __restrict exp_avg_sq,
                               const T* __restrict gradients, int64_t count, T* __restrict updates,
                               const LambCoefficients<T> c) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) {
    update_moments(exp_avg[i], exp_avg_sq[i], gradients[i] * c.gradient_scale, c);
    updates[i] = lamb_update(weights[i], exp_avg[i], exp_avg_sq[i], c);
  }
}

template <class T>
VH_IN_VERSIONS void adam_all(T* __restrict weights, T* __restrict exp_avg, T* __restrict exp_avg_sq,
                             const T* __restrict gradients, int64_t count, const AdamCoefficients<T>& coefficients) {
  const AdamCoefficients<T> c = coefficients;  // cannot be among what the loop writes to
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) {
    adam_element(weights[i], exp_avg[i], exp_avg_sq[i], gradients[i], c);
  }
}

template <class T>
VH_IN_VERSIONS void momentum_all(T* __restrict weights, T* __restrict buffer, const T* __restrict gradients,
                                 int64_t count, const MomentumCoefficients<T>& coefficients) {
  const MomentumCoefficients<T> c = coefficients;
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) {
    momentum_element(weights[i], buffer[i], gradients[i], c);
  }
}

template <class T>
VH_IN_VERSIONS void plain_all(T* __restrict weights, const T* __restrict gradients, int64_t count,
                              const MomentumCoefficients<T>& coefficients) {
  const MomentumCoefficients<T> c = coefficients;
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) {
    plain_element(weights[i], gradients[i], c);
  }
}

template <class T>
VH_IN_VERSIONS SquareSums lamb_prepare_all(const T* weights, T* exp_avg, T* exp_avg_sq, const T* gradients,
                                           int64_t count, const LambCoefficients<T>& c) {
  std::array<T, kChunk> updates;
  SquareSums sums;
  for (int64_t first = 0; first < count; first += kChunk) {
    const int64_t size = std::min(kChunk, count - first);
    lamb_chunk(weights + first, exp_avg + first, exp_avg_sq + first, gradients + first, size, updates.data(), c);
    sums += {square_all(weights + first, size), square_all(updates.data(), size)};
  }
  return sums;
}

template <class T>
VH_IN_VERSIONS void lamb_apply_all(T* __restrict weights, const T* __restrict exp_avg, const T* __restrict exp_avg_sq,
                                   int64_t count, const LambCoefficients<T>& coefficients) {
  const LambCoefficients<T> c = coefficients;
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) {
    weights[i] -= c.step_size * lamb_update(weights[i], exp_avg[i], exp_avg_sq[i], c);
  }
}

}  // namespace

SquareSums& SquareSums::operator+=(const SquareSums& other) {
  weights += other.weights;
  update += other.update;
  return *this;
}

// One version an instruction set; the bits are the same in all of them.
// NOLINTBEGIN(bugprone-macro-parentheses): T is a type.
#define VH_DEFINE_LOOPS(T)                                                                                       \
  template <>                                                                                                    \
  VH_VERSIONS void adam_loop(T* weights, T* exp_avg, T* exp_avg_sq, const T* gradients, int64_t count,           \
                             const AdamCoefficients<T>& c) {                                                     \
    adam_all(weights, exp_avg, exp_avg_sq, gradients, count, c);                                                 \
  }                                                                                                              \
  template <>                                                                                                    \
  VH_VERSIONS void momentum_loop(T* weights, T* buffer, const T* gradients, int64_t count,                       \
                                 const MomentumCoefficients<T>& c) {                                             \
    momentum_all(weights, buffer, gradients, count, c);                                                          \
  }                                                                                                              \
  template <>                                                                                                    \
  VH_VERSIONS void plain_loop(T* weights, const T* gradients, int64_t count, const MomentumCoefficients<T>& c) { \
    plain_all(weights, gradients, count, c);                                                                     \
  }                                                                                                              \
  template <>                                                                                                    \
  VH_VERSIONS double square_loop(const T* values, int64_t count) {                                               \
    return square_all(values, count);                                                                            \
  }                                                                                                              \
  template <>                                                                                                    \
  VH_VERSIONS SquareSums lamb_prepare_loop(const T* weights, T* exp_avg, T* exp_avg_sq, const T* gradients,      \
                                           int64_t count, const LambCoefficients<T>& c) {                        \
    return lamb_prepare_all(weights, exp_avg, exp_avg_sq, gradients, count, c);                                  \
  }                                                                                                              \
  template <>                                                                                                    \
  VH_VERSIONS void lamb_apply_loop(T* weights, const T* exp_avg, const T* exp_avg_sq, int64_t count,             \
                                   const LambCoefficients<T>& c) {                                               \
    lamb_apply_all(weights, exp_avg, exp_avg_sq, count, c);                                                      \
  }
// NOLINTEND(bugprone-macro-parentheses)

VH_DEFINE_LOOPS(float)
VH_DEFINE_LOOPS(double)

}  // namespace vit_hybrid::zero
