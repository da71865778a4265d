// Row loops, compiled for several instruction sets; the program takes the widest at its start.

// How a vector is passed differs between instruction sets; here none is, everything is inlined.
#pragma GCC diagnostic ignored "-Wpsabi"

#include "model/norm_rows.h"

#include <cmath>
#include <type_traits>

#include "model/lanes.h"
#include "src/base/instruction_sets.h"

namespace vit_hybrid::model {

namespace {

// The row in F for later passes: x itself, or the workspace, into which the first pass puts it by keep_widened().
template <class T, class F>
VH_INLINE const F* widened(const T* x, F* workspace) {
  if constexpr (std::is_same_v<T, F>) {
    return x;
  } else {
    return workspace;
  }
}

template <class T, class Part, class V>
VH_INLINE void keep_widened(const Part& part, typename Lanes<T>::Float* to, const V& v) {
  if constexpr (!std::is_same_v<T, typename Lanes<T>::Float>) {
    part.store(to, v);
  }
}

// The norm of the row whose vectors `read(i, part, v)` gives, once; `values` finds them again.
template <class T, class F, class Read>
VH_INLINE NormStatistics<F> norm_of(const F* values, T* y, const NormRows<F>& rows, const Read& read) {
  using V = typename Lanes<F>::V;
  const int64_t n = rows.n;
  const F mean = sum_lanes<F>(n, read) / F(n);
  const auto square = [=](int64_t i, auto part, V& v) VH_INLINED {
    part.load(values + i, v);
    v -= mean;
    part.template clear_others<F>(v);
    v *= v;
  };
  const NormStatistics<F> statistics{mean, F(1) / std::sqrt(sum_lanes<F>(n, square) / F(n) + rows.eps)};
  for_lanes<F>(n, [=, weight = rows.weight, bias = rows.bias](int64_t i, auto part) VH_INLINED {
    V v, w, b;
    part.load(values + i, v);
    part.load(weight + i, w);
    part.load(bias + i, b);
    part.store(y + i, norm_output(v, statistics, w, b));
  });
  return statistics;
}

template <class T, class F>
VH_INLINE NormStatistics<F> norm(const T* x, T* y, const NormRows<F>& rows) {
  F* const workspace = rows.workspace;
  const auto read = [=](int64_t i, auto part, auto& v) VH_INLINED {
    part.load(x + i, v);
    keep_widened<T>(part, workspace + i, v);
  };
  return norm_of(widened(x, workspace), y, rows, read);
}

template <class T, class F>
VH_INLINE NormStatistics<F> add_and_norm(const T* residual, T* branch, F scale, T* y, const NormRows<F>& rows) {
  F* const workspace = rows.workspace;
  const auto read = [=](int64_t i, auto part, auto& v) VH_INLINED {
    typename Lanes<F>::V kept, added;
    part.load(residual + i, kept);
    part.load(branch + i, added);
    part.store(branch + i, residual_sum(kept, added, scale));
    part.load(branch + i, v);
    keep_widened<T>(part, workspace + i, v);
  };
  return norm_of(widened(branch, workspace), y, rows, read);
}

template <class T, class F>
VH_INLINE void differentiate(const T* dy, const T* x, NormStatistics<F> statistics, const T* residual, T* dx,
                             F* dweight, F* dbias, const NormRows<F>& rows) {
  using V = typename Lanes<F>::V;
  const int64_t n = rows.n;
  const F* const weight = rows.weight;
  F* const wide_dy = rows.workspace;
  F* const wide_x = std::is_same_v<T, F> ? nullptr : rows.workspace + n;
  V gradients = {};
  V products = {};
  for_lanes<F>(n, [=, &gradients, &products](int64_t i, auto part) VH_INLINED {
    V above, v, w, dw, db;
    part.load(dy + i, above);
    part.load(x + i, v);
    keep_widened<T>(part, wide_dy + i, above);
    keep_widened<T>(part, wide_x + i, v);
    part.load(weight + i, w);
    part.load(dweight + i, dw);
    part.load(dbias + i, db);
    const V of_weight = above * normalized(v, statistics);
    part.store(dweight + i, dw + of_weight);
    part.store(dbias + i, db + above);
    gradients += above * w;
    products += of_weight * w;
  });
  const NormMeans<F> means{sum_of<F>(gradients) / F(n), sum_of<F>(products) / F(n)};
  const F* const above_row = widened(dy, wide_dy);
  const F* const row = widened(x, wide_x);
  for_lanes<F>(n, [=](int64_t i, auto part) VH_INLINED {
    V above, v, w;
    V beside = {};
    part.load(above_row + i, above);
    part.load(row + i, v);
    part.load(weight + i, w);
    if (residual != nullptr) {
      part.load(residual + i, beside);
    }
    part.store(dx + i, norm_gradient(above, v, statistics, w, means) + beside);
  });
}

template <class T, class F>
VH_INLINE void add_branch(const T* residual, const T* branch, F scale, T* sum, int64_t n) {
  using V = typename Lanes<T>::V;
  for_lanes<T>(n, [=](int64_t i, auto part) VH_INLINED {
    V added;
    V kept = {};
    part.load(branch + i, added);
    if (residual != nullptr) {
      part.load(residual + i, kept);
    }
    part.store(sum + i, residual_sum(kept, added, scale));
  });
}

template <class T, class F>
VH_INLINE void keep_elements(const T* x, const uint8_t* keep, F scale, T* kept, int64_t n) {
  using V = typename Lanes<T>::V;
  for_lanes<T>(n, [=](int64_t i, auto part) VH_INLINED {
    V v, mask;
    part.load(x + i, v);
    part.load_bytes(keep + i, mask);
    part.store(kept + i, v * (mask * scale));
  });
}

}  // namespace

template <class T, class F>
VH_VERSIONS NormStatistics<F> norm_row(const T* x, T* y, const NormRows<F>& rows) {
  return norm(x, y, rows);
}

template <class T, class F>
VH_VERSIONS NormStatistics<F> residual_norm_row(const T* residual, T* branch, F scale, T* y, const NormRows<F>& rows) {
  return add_and_norm(residual, branch, scale, y, rows);
}

template <class T, class F>
VH_VERSIONS void norm_backward_row(const T* dy, const T* x, NormStatistics<F> statistics, const T* residual, T* dx,
                                   F* dweight, F* dbias, const NormRows<F>& rows) {
  differentiate(dy, x, statistics, residual, dx, dweight, dbias, rows);
}

template <class T, class F>
VH_VERSIONS void residual_row(const T* residual, const T* branch, F scale, T* sum, int64_t n) {
  add_branch(residual, branch, scale, sum, n);
}

template <class T, class F>
VH_VERSIONS void keep_row(const T* x, const uint8_t* keep, F scale, T* kept, int64_t n) {
  keep_elements(x, keep, scale, kept, n);
}

#define VH_INSTANTIATE(T, F)                                                                                        \
  template NormStatistics<F> norm_row(const T*, T*, const NormRows<F>&);                                            \
  template NormStatistics<F> residual_norm_row(const T*, T*, F, T*, const NormRows<F>&);                            \
  template void norm_backward_row(const T*, const T*, NormStatistics<F>, const T*, T*, F*, F*, const NormRows<F>&); \
  template void residual_row(const T*, const T*, F, T*, int64_t);                                                   \
  template void keep_row(const T*, const uint8_t*, F, T*, int64_t)

VH_INSTANTIATE(float, float);
VH_INSTANTIATE(double, double);
VH_INSTANTIATE(c10::BFloat16, float);
VH_INSTANTIATE(c10::Half, float);

}  // namespace vit_hybrid::model
