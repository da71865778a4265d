// LayerNorm of one row by the lanes that share it: the work of each lane, for device kernels and for tests on the host.
#pragma once

#include <cmath>
#include <cstdint>

#include "src/base/element_vector.h"
#include "src/kernels/norm_kernel.h"

namespace vit_hybrid::kernels {

// `Lanes` are the threads that share a row: rank() and size() of them; sum(value), the sum over all in each; and
// forget(vector), after which the compiler widens a vector again instead of keeping it wide in registers. A lane takes
// the vectors rank, rank + size, ... of a row. T: type of the elements; F: ComputeType<T>, in which everything is
// summed; kVectors: vectors that a lane keeps in registers, enough for the row.

/// A pass over rows of `features` elements. `branch` is null, or u = residual_sum(x, branch, scale) is written over it
/// and normed instead of x.
template <class T>
struct NormForward {
  using F = ComputeType<T>;
  const T* x;
  T* branch;
  const F* scales;  ///< of samples, or null: 1
  const T* weight;
  const T* bias;
  T* y;
  F* mean;
  F* rstd;
  int64_t rows;
  int64_t rows_of_sample;
  int64_t features;
  F eps;

  VH_HOST_DEVICE F scale_of(int64_t row) const { return scales == nullptr ? F(1) : scales[row / rows_of_sample]; }
};

/// The backward of a pass over rows. `residual_gradient` is null, or is added to dx.
template <class T>
struct NormBackward {
  using F = ComputeType<T>;
  const T* dy;
  const T* x;
  const F* mean;
  const F* rstd;
  const T* weight;
  const T* residual_gradient;
  T* dx;
  int64_t rows;
  int64_t features;
};

/// Column at which vector `v` of a lane begins.
template <int kWidth, class Lanes>
VH_HOST_DEVICE inline int64_t column_of(int v, const Lanes& lanes) {
  return (static_cast<int64_t>(v) * lanes.size() + lanes.rank()) * kWidth;
}

/// `kWidth` elements in the computing type.
template <int kWidth, class T>
VH_HOST_DEVICE inline void widen(const ElementVector<T, kWidth>& from, ComputeType<T>* to) {
  VH_UNROLL
  for (int k = 0; k < kWidth; ++k) {
    to[k] = static_cast<ComputeType<T>>(from[k]);
  }
}

/// The element that is normed: x, or the rounded sum, which `branch` then holds.
template <int kWidth, class T>
VH_HOST_DEVICE inline void add_branch(const ElementVector<T, kWidth>& x, ElementVector<T, kWidth>& branch,
                                      ComputeType<T> scale) {
  using F = ComputeType<T>;
  VH_UNROLL
  for (int k = 0; k < kWidth; ++k) {
    branch[k] = static_cast<T>(residual_sum(static_cast<F>(x[k]), static_cast<F>(branch[k]), scale));
  }
}

/// Writes y of `kWidth` elements from `column` on.
template <int kWidth, class T>
VH_HOST_DEVICE inline void write_normed(const NormForward<T>& a, int64_t row, int64_t column,
                                        const ComputeType<T>* values, NormStatistics<ComputeType<T>> statistics) {
  using F = ComputeType<T>;
  const auto weight = load_vector<kWidth>(a.weight + column);
  const auto bias = load_vector<kWidth>(a.bias + column);
  ElementVector<T, kWidth> y;
  VH_UNROLL
  for (int k = 0; k < kWidth; ++k) {
    y[k] = static_cast<T>(norm_output(values[k], statistics, static_cast<F>(weight[k]), static_cast<F>(bias[k])));
  }
  store_vector(a.y + row * a.features + column, y);
}

template <class T, class Lanes>
VH_HOST_DEVICE inline void write_statistics(const NormForward<T>& a, int64_t row,
                                            NormStatistics<ComputeType<T>> statistics, const Lanes& lanes) {
  if (lanes.rank() == 0) {
    a.mean[row] = statistics.mean;
    a.rstd[row] = statistics.rstd;
  }
}

/// Calls use(v, column) for each vector of a lane that lies in the row.
template <int kWidth, int kVectors, class Lanes, class Use>
VH_HOST_DEVICE inline void for_columns(int64_t features, const Lanes& lanes, const Use& use) {
  VH_UNROLL
  for (int v = 0; v < kVectors; ++v) {
    const int64_t column = column_of<kWidth>(v, lanes);
    if (column < features) {
      use(v, column);
    }
  }
}

/// Reads a lane's vectors of what is normed; writes the sum where there is a branch.
template <int kWidth, int kVectors, class T, class Lanes>
VH_HOST_DEVICE inline void read_normed(const NormForward<T>& a, int64_t row, const Lanes& lanes,
                                       ElementVector<T, kWidth> (&vectors)[kVectors]) {
  const int64_t begin = row * a.features;
  for_columns<kWidth, kVectors>(a.features, lanes,
                                [&](int v, int64_t column) { vectors[v] = load_vector<kWidth>(a.x + begin + column); });
  if (a.branch == nullptr) {
    return;
  }
  // All are read before the first is written: memory is kept busy.
  ElementVector<T, kWidth> branch[kVectors];
  for_columns<kWidth, kVectors>(
      a.features, lanes, [&](int v, int64_t column) { branch[v] = load_vector<kWidth>(a.branch + begin + column); });
  const ComputeType<T> scale = a.scale_of(row);
  for_columns<kWidth, kVectors>(a.features, lanes, [&](int v, int64_t column) {
    add_branch<kWidth>(vectors[v], branch[v], scale);
    store_vector(a.branch + begin + column, branch[v]);
    vectors[v] = branch[v];
  });
}

/// Forward of a row that the lanes' registers hold: memory is read once. The variance is that of the differences from
/// the mean.
template <int kWidth, int kVectors, class T, class Lanes>
VH_HOST_DEVICE inline void norm_short_row(const NormForward<T>& a, int64_t row, const Lanes& lanes) {
  using F = ComputeType<T>;
  ElementVector<T, kWidth> vectors[kVectors];
  read_normed(a, row, lanes, vectors);
  F values[kVectors * kWidth];
  F sum = 0;
  for_columns<kWidth, kVectors>(a.features, lanes, [&](int v, int64_t /*column*/) {
    widen<kWidth>(vectors[v], values + v * kWidth);
    VH_UNROLL
    for (int k = 0; k < kWidth; ++k) {
      sum += values[v * kWidth + k];
    }
  });
  NormStatistics<F> statistics{lanes.sum(sum) / static_cast<F>(a.features), F(0)};
  F squares = 0;
  for_columns<kWidth, kVectors>(a.features, lanes, [&](int v, int64_t /*column*/) {
    VH_UNROLL
    for (int k = 0; k < kWidth; ++k) {
      const F difference = values[v * kWidth + k] - statistics.mean;
      squares += difference * difference;
    }
  });
  statistics.rstd = F(1) / std::sqrt(lanes.sum(squares) / static_cast<F>(a.features) + a.eps);
  write_statistics(a, row, statistics, lanes);
  for_columns<kWidth, kVectors>(a.features, lanes, [&](int v, int64_t column) {
    write_normed<kWidth>(a, row, column, values + v * kWidth, statistics);
  });
}

/// Forward of a row of any length, which is read three times, the second and third from a cache.
template <int kWidth, class T, class Lanes>
VH_HOST_DEVICE inline void norm_long_row(const NormForward<T>& a, int64_t row, const Lanes& lanes) {
  using F = ComputeType<T>;
  const int64_t begin = row * a.features;
  const int64_t stride = static_cast<int64_t>(lanes.size()) * kWidth;
  const T* const normed = (a.branch != nullptr ? a.branch : a.x) + begin;
  F values[kWidth];
  F sum = 0;
  for (int64_t column = column_of<kWidth>(0, lanes); column < a.features; column += stride) {
    auto vector = load_vector<kWidth>(a.x + begin + column);
    if (a.branch != nullptr) {
      auto branch = load_vector<kWidth>(a.branch + begin + column);
      add_branch<kWidth>(vector, branch, a.scale_of(row));
      store_vector(a.branch + begin + column, branch);
      vector = branch;
    }
    widen<kWidth>(vector, values);
    for (int k = 0; k < kWidth; ++k) {
      sum += values[k];
    }
  }
  NormStatistics<F> statistics{lanes.sum(sum) / static_cast<F>(a.features), F(0)};
  F squares = 0;
  for (int64_t column = column_of<kWidth>(0, lanes); column < a.features; column += stride) {
    widen<kWidth>(load_vector<kWidth>(normed + column), values);
    for (int k = 0; k < kWidth; ++k) {
      squares += (values[k] - statistics.mean) * (values[k] - statistics.mean);
    }
  }
  statistics.rstd = F(1) / std::sqrt(lanes.sum(squares) / static_cast<F>(a.features) + a.eps);
  write_statistics(a, row, statistics, lanes);
  for (int64_t column = column_of<kWidth>(0, lanes); column < a.features; column += stride) {
    widen<kWidth>(load_vector<kWidth>(normed + column), values);
    write_normed<kWidth>(a, row, column, values, statistics);
  }
}

}  // namespace vit_hybrid::kernels
