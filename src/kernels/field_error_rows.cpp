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

template <class T, class F>
VH_INLINE FieldSquares squares_of(const T* prediction, const F* truth, int64_t n) {
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
      error[k] += difference[k] * difference[k];
      of_truth[k] += wide[k] * wide[k];
    }
  });
#pragma GCC unroll 2
  for (int64_t k = 1; k < kDoubles<F>; ++k) {
    error[0] += error[k];
    of_truth[0] += of_truth[k];
  }
  return {sum_of<double>(error[0]), sum_of<double>(of_truth[0])};
}

template <class T, class F>
VH_INLINE void differences_of(const T* prediction, const F* truth, double factor, T* to, int64_t n) {
  using V = typename Lanes<F>::V;
  for_lanes<F>(n, [=](int64_t i, auto part) VH_INLINED {
    V predicted, value;
    part.load(prediction + i, predicted);
    part.load(truth + i, value);
    typename Lanes<double>::V product[kDoubles<F>];
    to_double(predicted - value, product);
#pragma GCC unroll 2
    for (int64_t k = 0; k < kDoubles<F>; ++k) {
      product[k] *= factor;
    }
    from_double(product, value);
    part.store(to + i, value);
  });
}

}  // namespace

template <class T, class F>
VH_VERSIONS FieldSquares field_squares_row(const T* prediction, const F* truth, int64_t n) {
  return squares_of(prediction, truth, n);
}

template <class T, class F>
VH_VERSIONS void scaled_difference_row(const T* prediction, const F* truth, double factor, T* to, int64_t n) {
  differences_of(prediction, truth, factor, to, n);
}

// NOLINTBEGIN(bugprone-macro-parentheses): T and F are types.
#define VH_INSTANTIATE(T, F)                                            \
  template FieldSquares field_squares_row(const T*, const F*, int64_t); \
  template void scaled_difference_row(const T*, const F*, double, T*, int64_t)
// NOLINTEND(bugprone-macro-parentheses)

VH_INSTANTIATE(float, float);
VH_INSTANTIATE(double, double);
VH_INSTANTIATE(c10::BFloat16, float);
VH_INSTANTIATE(c10::Half, float);

}  // namespace vit_hybrid::kernels
