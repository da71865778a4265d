// Loops over runs of a patch, compiled for several instruction sets; the program takes the widest at its start.

// How a vector is passed differs between instruction sets; here none is, everything is inlined.
#pragma GCC diagnostic ignored "-Wpsabi"

#include "src/kernels/field_error_rows.h"

#include "src/kernels/lanes.h"

namespace vit_hybrid::kernels {

namespace {

// Vectors of doubles in one of F.
template <class F>
constexpr int64_t kDoubles = Lanes<F>::kWidth / Lanes<double>::kWidth;

enum class Weighing { kNone, kWeights };

template <ErrorPower kPower, Weighing kWeighing, class T, class F>
VH_INLINE FieldSums sums_of(const T* prediction, const F* truth, const double* weights, int64_t n) {
  using Doubles = typename Lanes<double>::V;
  Doubles error[kDoubles<F>] = {};
  Doubles of_truth[kDoubles<F>] = {};
  for_lanes<F>(n, [=, &error, &of_truth](int64_t i, auto part) VH_INLINED {
    typename Lanes<F>::V predicted, value;
    part.load(prediction + i, predicted);
    part.load(truth + i, value);
    Doubles difference[kDoubles<F>], wide[kDoubles<F>];
    to_double(predicted - value, difference);
    to_double(value, wide);
#pragma GCC unroll 2
    for (int64_t k = 0; k < kDoubles<F>; ++k) {
      Doubles of_error, of_value;
      if constexpr (kPower == ErrorPower::kSquare) {
        of_error = difference[k] * difference[k];
        of_value = wide[k] * wide[k];
      } else {
        of_error = difference[k] < 0.0 ? -difference[k] : difference[k];
        of_value = wide[k] < 0.0 ? -wide[k] : wide[k];
      }
      if constexpr (kWeighing == Weighing::kWeights) {
        Doubles weight;
        Lanes<double>::load(weights + i + k * Lanes<double>::kWidth, weight);
        of_error *= weight;
        of_value *= weight;
      }
      error[k] += of_error;
      of_truth[k] += of_value;
    }
  });
#pragma GCC unroll 2
  for (int64_t k = 1; k < kDoubles<F>; ++k) {
    error[0] += error[k];
    of_truth[0] += of_truth[k];
  }
  return {sum_of<double>(error[0]), sum_of<double>(of_truth[0])};
}

template <ErrorPower kPower, Weighing kWeighing, class T, class F>
VH_INLINE void gradients_of(const T* prediction, const F* truth, const double* weights, double factor, T* to,
                            int64_t n) {
  using V = typename Lanes<F>::V;
  using Doubles = typename Lanes<double>::V;
  for_lanes<F>(n, [=](int64_t i, auto part) VH_INLINED {
    V predicted, value;
    part.load(prediction + i, predicted);
    part.load(truth + i, value);
    Doubles product[kDoubles<F>];
    to_double(predicted - value, product);
#pragma GCC unroll 2
    for (int64_t k = 0; k < kDoubles<F>; ++k) {
      if constexpr (kPower == ErrorPower::kAbsolute) {
        const Doubles one = Doubles{} + 1.0;
        product[k] = product[k] > 0.0 ? one : product[k] < 0.0 ? -one : product[k];
      }
      if constexpr (kWeighing == Weighing::kWeights) {
        Doubles weight;
        Lanes<double>::load(weights + i + k * Lanes<double>::kWidth, weight);
        product[k] *= weight * factor;
      } else {
        product[k] *= factor;
      }
    }
    from_double(product, value);
    part.store(to + i, value);
  });
}

}  // namespace

template <class T, class F>
VH_VERSIONS FieldSums field_sums_row(const T* prediction, const F* truth, const double* weights, ErrorPower power,
                                     int64_t n) {
  if (power == ErrorPower::kSquare) {
    return weights == nullptr ? sums_of<ErrorPower::kSquare, Weighing::kNone>(prediction, truth, weights, n)
                              : sums_of<ErrorPower::kSquare, Weighing::kWeights>(prediction, truth, weights, n);
  }
  return weights == nullptr ? sums_of<ErrorPower::kAbsolute, Weighing::kNone>(prediction, truth, weights, n)
                            : sums_of<ErrorPower::kAbsolute, Weighing::kWeights>(prediction, truth, weights, n);
}

template <class T, class F>
VH_VERSIONS void error_gradient_row(const T* prediction, const F* truth, const double* weights, double factor,
                                    ErrorPower power, T* to, int64_t n) {
  if (power == ErrorPower::kSquare && weights == nullptr) {
    gradients_of<ErrorPower::kSquare, Weighing::kNone>(prediction, truth, weights, factor, to, n);
  } else if (power == ErrorPower::kSquare) {
    gradients_of<ErrorPower::kSquare, Weighing::kWeights>(prediction, truth, weights, factor, to, n);
  } else if (weights == nullptr) {
    gradients_of<ErrorPower::kAbsolute, Weighing::kNone>(prediction, truth, weights, factor, to, n);
  } else {
    gradients_of<ErrorPower::kAbsolute, Weighing::kWeights>(prediction, truth, weights, factor, to, n);
  }
}

// NOLINTBEGIN(bugprone-macro-parentheses): T and F are types.
#define VH_INSTANTIATE(T, F)                                                                 \
  template FieldSums field_sums_row(const T*, const F*, const double*, ErrorPower, int64_t); \
  template void error_gradient_row(const T*, const F*, const double*, double, ErrorPower, T*, int64_t)
// NOLINTEND(bugprone-macro-parentheses)

VH_INSTANTIATE(float, float);
VH_INSTANTIATE(double, double);
VH_INSTANTIATE(c10::BFloat16, float);
VH_INSTANTIATE(c10::Half, float);

}  // namespace vit_hybrid::kernels
