// The loops of norm_rows.h, to be inlined into functions for several instruction sets. T: float, double, or a type that
// is widened by one instruction.
#pragma once

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "src/kernels/lanes.h"
#include "src/kernels/norm_rows.h"

namespace vit_hybrid::kernels {

template <class T, class F>
VH_INLINE void add_branch(const T* residual, const T* branch, F scale, T* sum, int64_t n) {
  using V = typename Lanes<T>::V;
  store_lanes(n, sum, [=](int64_t i, auto part, V& v) VH_INLINED {
    V added;
    V kept = {};
    part.load(branch + i, added);
    if (residual != nullptr) {
      part.load(residual + i, kept);
    }
    v = residual_sum(kept, added, scale);
  });
}

template <class T, class F>
VH_INLINE void keep_elements(const T* x, const uint8_t* keep, F scale, T* kept, int64_t n) {
  using V = typename Lanes<T>::V;
  store_lanes(n, kept, [=](int64_t i, auto part, V& v) VH_INLINED {
    V mask;
    part.load(x + i, v);
    part.load_bytes(keep + i, mask);
    v *= mask * scale;
  });
}

namespace detail {

// Rows of which each pass is made before the next: one's sums are waited for behind the others'.
constexpr int64_t kGroup = 4;

template <class T, class F>
VH_INLINE void norm_group(const T* x, T* y, int64_t count, F* mean, F* rstd, const NormRows<F>& rows) {
  using V = typename Lanes<F>::V;
  const int64_t n = rows.n;
  for (int64_t row = 0; row < count; ++row) {
    const auto value = [=](int64_t i, auto part, V& v) VH_INLINED { part.load(x + row * n + i, v); };
    mean[row] = sum_lanes<F>(n, value) / F(n);
  }
  for (int64_t row = 0; row < count; ++row) {
    const auto square = [=, mean = mean[row]](int64_t i, auto part, V& v) VH_INLINED {
      part.load(x + row * n + i, v);
      v -= mean;
      part.template clear_others<F>(v);
      v *= v;
    };
    rstd[row] = F(1) / std::sqrt(sum_lanes<F>(n, square) / F(n) + rows.eps);
  }
  for (int64_t row = 0; row < count; ++row) {
    const NormStatistics<F> statistics{mean[row], rstd[row]};
    const auto output = [=, weight = rows.weight, bias = rows.bias](int64_t i, auto part, V& v) VH_INLINED {
      V w, b;
      part.load(x + row * n + i, v);
      part.load(weight + i, w);
      part.load(bias + i, b);
      v = norm_output(v, statistics, w, b);
    };
    store_lanes(n, y + row * n, output);
  }
}

// The row's part in the gradients of the parameters, and the means that its own gradient needs. Keeps x^ in the
// workspace where T is not F.
template <class T, class F>
VH_INLINE NormMeans<F> add_to_parameters(const NormRowsBackward<T, F>& arrays, int64_t row, F* dweight, F* dbias,
                                         const NormRows<F>& rows) {
  using V = typename Lanes<F>::V;
  const int64_t n = rows.n;
  const T* const dy = arrays.dy + row * n;
  const T* const x = arrays.x + row * n;
  const NormStatistics<F> statistics{arrays.mean[row], arrays.rstd[row]};
  V gradients = {};
  V products = {};
  const F* const weight = rows.weight;
  F* const workspace = rows.workspace;
  for_lanes<F>(n, [=, &gradients, &products](int64_t i, auto part) VH_INLINED {
    V above, v, w, dw, db;
    part.load(dy + i, above);
    part.load(x + i, v);
    part.load(weight + i, w);
    part.load(dweight + i, dw);
    part.load(dbias + i, db);
    v = normalized(v, statistics);
    if constexpr (!std::is_same_v<T, F>) {
      part.store(workspace + i, v);
    }
    const V of_weight = above * v;
    part.store(dweight + i, dw + of_weight);
    part.store(dbias + i, db + above);
    gradients += above * w;
    products += of_weight * w;
  });
  return {sum_of<F>(gradients) / F(n), sum_of<F>(products) / F(n)};
}

template <class T, class F>
VH_INLINE void differentiate_row(const NormRowsBackward<T, F>& arrays, int64_t row, NormMeans<F> means,
                                 const NormRows<F>& rows) {
  using V = typename Lanes<F>::V;
  const int64_t n = rows.n;
  const T* const dy = arrays.dy + row * n;
  const T* const x = arrays.x + row * n;
  const T* const residual = arrays.residual == nullptr ? nullptr : arrays.residual + row * n;
  const NormStatistics<F> statistics{arrays.mean[row], arrays.rstd[row]};
  const F* const weight = rows.weight;
  const F* const workspace = rows.workspace;
  const auto gradient = [=](int64_t i, auto part, V& v) VH_INLINED {
    V above, w;
    V beside = {};
    part.load(dy + i, above);
    if constexpr (std::is_same_v<T, F>) {
      part.load(x + i, v);
      v = normalized(v, statistics);
    } else {
      part.load(workspace + i, v);
    }
    part.load(weight + i, w);
    if (residual != nullptr) {
      part.load(residual + i, beside);
    }
    v = norm_gradient_at(above, v, statistics.rstd, w, means) + beside;
  };
  store_lanes(n, arrays.dx + row * n, gradient);
}

}  // namespace detail

template <class T, class F>
VH_INLINE void norm_all(const T* x, T* y, int64_t count, F* mean, F* rstd, const NormRows<F>& rows) {
  for (int64_t row = 0; row < count; row += detail::kGroup) {
    const int64_t begin = row * rows.n;
    detail::norm_group(x + begin, y + begin, std::min(detail::kGroup, count - row), mean + row, rstd + row, rows);
  }
}

template <class T, class F>
VH_INLINE void add_and_norm_all(const T* residual, T* branch, const F* scales, T* y, int64_t count, F* mean, F* rstd,
                                const NormRows<F>& rows) {
  for (int64_t row = 0; row < count; row += detail::kGroup) {
    const int64_t group = std::min(detail::kGroup, count - row);
    for (int64_t i = row; i < row + group; ++i) {
      add_branch(residual + i * rows.n, branch + i * rows.n, scales[i], branch + i * rows.n, rows.n);
    }
    const int64_t begin = row * rows.n;
    detail::norm_group(branch + begin, y + begin, group, mean + row, rstd + row, rows);
  }
}

// Row by row: memory is slower where rows are read side by side, or read again after the next.
template <class T, class F>
VH_INLINE void differentiate_all(const NormRowsBackward<T, F>& arrays, int64_t count, F* dweight, F* dbias,
                                 const NormRows<F>& rows) {
  for (int64_t row = 0; row < count; ++row) {
    const NormMeans<F> means = detail::add_to_parameters(arrays, row, dweight, dbias, rows);
    detail::differentiate_row(arrays, row, means, rows);
  }
}

}  // namespace vit_hybrid::kernels
