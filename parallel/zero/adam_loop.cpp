// The vector loops of Adam. Compiled with -fno-math-errno, so that square roots vectorise, and without contraction.
#include "parallel/zero/adam_loop.h"

namespace vit_hybrid::zero {

namespace {

template <class T>
void loop(T* __restrict weights, T* __restrict exp_avg, T* __restrict exp_avg_sq, const T* __restrict gradients,
          int64_t count, const AdamCoefficients<T> coefficients) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) {
    adam_element(weights[i], exp_avg[i], exp_avg_sq[i], gradients[i], coefficients);
  }
}

}  // namespace

void adam_loop(float* weights, float* exp_avg, float* exp_avg_sq, const float* gradients, int64_t count,
               const AdamCoefficients<float>& coefficients) {
  loop(weights, exp_avg, exp_avg_sq, gradients, count, coefficients);
}

void adam_loop(double* weights, double* exp_avg, double* exp_avg_sq, const double* gradients, int64_t count,
               const AdamCoefficients<double>& coefficients) {
  loop(weights, exp_avg, exp_avg_sq, gradients, count, coefficients);
}

}  // namespace vit_hybrid::zero
