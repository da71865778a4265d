// The vector loops. Compiled with -fno-math-errno, so that square roots vectorise, and without contraction.
#include "parallel/zero/update_loops.h"

#include <algorithm>
#include <array>

#include "parallel/zero/sum_of_squares.h"

namespace vit_hybrid::zero {

namespace {

constexpr int64_t kChunk = 1024;  // updates that are kept for their sum: they stay in the first-level cache

// The moments and updates of a chunk.
template <class T>
void lamb_chunk(const T* __restrict weights, T* __restrict exp_avg, T* __restrict exp_avg_sq,
                const T* __restrict gradients, int64_t count, T* __restrict updates, const LambCoefficients<T> c) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) {
    lamb_moments(exp_avg[i], exp_avg_sq[i], gradients[i], c);
    updates[i] = lamb_update(weights[i], exp_avg[i], exp_avg_sq[i], c);
  }
}

}  // namespace

template <class T>
void adam_loop(T* __restrict weights, T* __restrict exp_avg, T* __restrict exp_avg_sq, const T* __restrict gradients,
               int64_t count, const AdamCoefficients<T>& coefficients) {
  const AdamCoefficients<T> c = coefficients;  // cannot be among what the loop writes to
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) {
    adam_element(weights[i], exp_avg[i], exp_avg_sq[i], gradients[i], c);
  }
}

template <class T>
void momentum_loop(T* __restrict weights, T* __restrict buffer, const T* __restrict gradients, int64_t count,
                   const MomentumCoefficients<T>& coefficients) {
  const MomentumCoefficients<T> c = coefficients;
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) {
    momentum_element(weights[i], buffer[i], gradients[i], c);
  }
}

template <class T>
void plain_loop(T* __restrict weights, const T* __restrict gradients, int64_t count,
                const MomentumCoefficients<T>& coefficients) {
  const MomentumCoefficients<T> c = coefficients;
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) {
    plain_element(weights[i], gradients[i], c);
  }
}

SquareSums& SquareSums::operator+=(const SquareSums& other) {
  weights += other.weights;
  update += other.update;
  return *this;
}

template <class T>
SquareSums lamb_prepare_loop(const T* weights, T* exp_avg, T* exp_avg_sq, const T* gradients, int64_t count,
                             const LambCoefficients<T>& c) {
  std::array<T, kChunk> updates;
  SquareSums sums;
  for (int64_t first = 0; first < count; first += kChunk) {
    const int64_t size = std::min(kChunk, count - first);
    lamb_chunk(weights + first, exp_avg + first, exp_avg_sq + first, gradients + first, size, updates.data(), c);
    sums += {block_sum_of_squares(weights + first, size), block_sum_of_squares(updates.data(), size)};
  }
  return sums;
}

template <class T>
void lamb_apply_loop(T* __restrict weights, const T* __restrict exp_avg, const T* __restrict exp_avg_sq, int64_t count,
                     const LambCoefficients<T>& coefficients) {
  const LambCoefficients<T> c = coefficients;
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) {
    weights[i] -= c.step_size * lamb_update(weights[i], exp_avg[i], exp_avg_sq[i], c);
  }
}

template void adam_loop(float*, float*, float*, const float*, int64_t, const AdamCoefficients<float>&);
template void momentum_loop(float*, float*, const float*, int64_t, const MomentumCoefficients<float>&);
template void plain_loop(float*, const float*, int64_t, const MomentumCoefficients<float>&);
template SquareSums lamb_prepare_loop(const float*, float*, float*, const float*, int64_t,
                                      const LambCoefficients<float>&);
template void lamb_apply_loop(float*, const float*, const float*, int64_t, const LambCoefficients<float>&);

template void adam_loop(double*, double*, double*, const double*, int64_t, const AdamCoefficients<double>&);
template void momentum_loop(double*, double*, const double*, int64_t, const MomentumCoefficients<double>&);
template void plain_loop(double*, const double*, int64_t, const MomentumCoefficients<double>&);
template SquareSums lamb_prepare_loop(const double*, double*, double*, const double*, int64_t,
                                      const LambCoefficients<double>&);
template void lamb_apply_loop(double*, const double*, const double*, int64_t, const LambCoefficients<double>&);

}  // namespace vit_hybrid::zero
