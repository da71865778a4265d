// LayerNorm's arithmetic for one element, and the work of the threads of a GPU that share a row: for device kernels and
// for tests on the host.
#pragma once

#include <cmath>
#include <cstdint>

#include "src/base/instruction_sets.h"
#include "src/kernels/element_vector.h"

namespace vit_hybrid::kernels {

/// Mean and 1 / sqrt(variance + eps) of a row.
template <class F>
struct NormStatistics {
  F mean;
  F rstd;
};

/// What the gradient of a row needs of the whole row: means over it of dy w and of dy w x^, x^ being normalized().
template <class F>
struct NormMeans {
  F gradient;
  F product;
};

// X: a number of type F or, on the host, a vector of them. Always inlined: how vectors are passed differs between the
// instruction sets that callers are compiled for.

template <class X, class F>
VH_HOST_DEVICE inline __attribute__((always_inline)) X normalized(const X& x, NormStatistics<F> statistics) {
  return (x - statistics.mean) * statistics.rstd;
}

/// J. L. Ba et al., "Layer Normalization", 2016.
template <class X, class F>
VH_HOST_DEVICE inline __attribute__((always_inline)) X norm_output(const X& x, NormStatistics<F> statistics,
                                                                   const X& weight, const X& bias) {
  return normalized(x, statistics) * weight + bias;
}

/// The gradient of x from that of norm_output(), for a given x^.
template <class X, class F>
VH_HOST_DEVICE inline __attribute__((always_inline)) X norm_gradient_at(const X& dy, const X& normalized_x, F rstd,
                                                                        const X& weight, NormMeans<F> means) {
  return rstd * (dy * weight - means.gradient - normalized_x * means.product);
}

template <class X, class F>
VH_HOST_DEVICE inline __attribute__((always_inline)) X norm_gradient(const X& dy, const X& x,
                                                                     NormStatistics<F> statistics, const X& weight,
                                                                     NormMeans<F> means) {
  const X normalized_x = normalized(x, statistics);
  return norm_gradient_at(dy, normalized_x, statistics.rstd, weight, means);
}

/// `scale` is what stochastic depth multiplies the branch of a sample with: 0 or 1 / (1 - rate); else 1.
template <class X, class F>
VH_HOST_DEVICE inline __attribute__((always_inline)) X residual_sum(const X& residual, const X& branch, F scale) {
  return residual + scale * branch;
}

// `RowThreads` are the threads of a GPU that share a row, a warp or a block: rank() and size() of them; sum(value), the
// sum over all in each; and forget(vector), after which the compiler widens a vector again instead of keeping it wide
// in registers. A thread takes the vectors rank, rank + size, ... of a row. T: type of the elements; F: ComputeType<T>,
// in which everything is summed; kVectors: vectors that a thread keeps in registers, enough for the row.

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

/// Column at which vector `v` of a thread begins.
template <int kWidth, class RowThreads>
VH_HOST_DEVICE inline int64_t column_of(int v, const RowThreads& threads) {
  return (static_cast<int64_t>(v) * threads.size() + threads.rank()) * kWidth;
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

template <class T, class RowThreads>
VH_HOST_DEVICE inline void write_statistics(const NormForward<T>& a, int64_t row,
                                            NormStatistics<ComputeType<T>> statistics, const RowThreads& threads) {
  if (threads.rank() == 0) {
    a.mean[row] = statistics.mean;
    a.rstd[row] = statistics.rstd;
  }
}

/// Calls use(v, column) for each vector of a thread that lies in the row.
template <int kWidth, int kVectors, class RowThreads, class Use>
VH_HOST_DEVICE inline void for_columns(int64_t features, const RowThreads& threads, const Use& use) {
  VH_UNROLL
  for (int v = 0; v < kVectors; ++v) {
    const int64_t column = column_of<kWidth>(v, threads);
    if (column < features) {
      use(v, column);
    }
  }
}

/// Reads a thread's vectors of what is normed; writes the sum where there is a branch.
template <int kWidth, int kVectors, class T, class RowThreads>
VH_HOST_DEVICE inline void read_normed(const NormForward<T>& a, int64_t row, const RowThreads& threads,
                                       ElementVector<T, kWidth> (&vectors)[kVectors]) {
  const int64_t begin = row * a.features;
  for_columns<kWidth, kVectors>(a.features, threads,
                                [&](int v, int64_t column) { vectors[v] = load_vector<kWidth>(a.x + begin + column); });
  if (a.branch == nullptr) {
    return;
  }
  // All are read before the first is written: memory is kept busy.
  ElementVector<T, kWidth> branch[kVectors];
  for_columns<kWidth, kVectors>(
      a.features, threads, [&](int v, int64_t column) { branch[v] = load_vector<kWidth>(a.branch + begin + column); });
  const ComputeType<T> scale = a.scale_of(row);
  for_columns<kWidth, kVectors>(a.features, threads, [&](int v, int64_t column) {
    add_branch<kWidth>(vectors[v], branch[v], scale);
    store_vector(a.branch + begin + column, branch[v]);
    vectors[v] = branch[v];
  });
}

/// Forward of a row that the threads' registers hold: memory is read once. The variance is that of the differences from
/// the mean.
template <int kWidth, int kVectors, class T, class RowThreads>
VH_HOST_DEVICE inline void norm_short_row(const NormForward<T>& a, int64_t row, const RowThreads& threads) {
  using F = ComputeType<T>;
  ElementVector<T, kWidth> vectors[kVectors];
  read_normed(a, row, threads, vectors);
  F values[kVectors * kWidth];
  F sum = 0;
  for_columns<kWidth, kVectors>(a.features, threads, [&](int v, int64_t /*column*/) {
    widen<kWidth>(vectors[v], values + v * kWidth);
    VH_UNROLL
    for (int k = 0; k < kWidth; ++k) {
      sum += values[v * kWidth + k];
    }
  });
  NormStatistics<F> statistics{threads.sum(sum) / static_cast<F>(a.features), F(0)};
  F squares = 0;
  for_columns<kWidth, kVectors>(a.features, threads, [&](int v, int64_t /*column*/) {
    VH_UNROLL
    for (int k = 0; k < kWidth; ++k) {
      const F difference = values[v * kWidth + k] - statistics.mean;
      squares += difference * difference;
    }
  });
  statistics.rstd = F(1) / std::sqrt(threads.sum(squares) / static_cast<F>(a.features) + a.eps);
  write_statistics(a, row, statistics, threads);
  for_columns<kWidth, kVectors>(a.features, threads, [&](int v, int64_t column) {
    write_normed<kWidth>(a, row, column, values + v * kWidth, statistics);
  });
}

/// Forward of a row of any length, which is read three times, the second and third from a cache.
template <int kWidth, class T, class RowThreads>
VH_HOST_DEVICE inline void norm_long_row(const NormForward<T>& a, int64_t row, const RowThreads& threads) {
  using F = ComputeType<T>;
  const int64_t begin = row * a.features;
  const int64_t stride = static_cast<int64_t>(threads.size()) * kWidth;
  const T* const normed = (a.branch != nullptr ? a.branch : a.x) + begin;
  F values[kWidth];
  F sum = 0;
  for (int64_t column = column_of<kWidth>(0, threads); column < a.features; column += stride) {
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
  NormStatistics<F> statistics{threads.sum(sum) / static_cast<F>(a.features), F(0)};
  F squares = 0;
  for (int64_t column = column_of<kWidth>(0, threads); column < a.features; column += stride) {
    widen<kWidth>(load_vector<kWidth>(normed + column), values);
    for (int k = 0; k < kWidth; ++k) {
      squares += (values[k] - statistics.mean) * (values[k] - statistics.mean);
    }
  }
  statistics.rstd = F(1) / std::sqrt(threads.sum(squares) / static_cast<F>(a.features) + a.eps);
  write_statistics(a, row, statistics, threads);
  for (int64_t column = column_of<kWidth>(0, threads); column < a.features; column += stride) {
    widen<kWidth>(load_vector<kWidth>(normed + column), values);
    write_normed<kWidth>(a, row, column, values, statistics);
  }
}

/// What a thread adds up over its rows in the columns it has, in registers: for the weight, the bias, and a bias that
/// was added to x.
template <class F, int kElements>
struct NormSums {
  F weight[kElements];
  F bias[kElements];
  F added_bias[kElements];  ///< unused where nobody asks for it

  VH_HOST_DEVICE void clear() {
    VH_UNROLL
    for (int k = 0; k < kElements; ++k) {
      weight[k] = bias[k] = added_bias[k] = F(0);
    }
  }
};

/// A vector of dy, x and weight in the computing type.
template <int kWidth, class T>
struct NormVector {
  using F = ComputeType<T>;
  F dy[kWidth];
  F x[kWidth];
  F weight[kWidth];

  VH_HOST_DEVICE NormVector(const NormBackward<T>& a, int64_t column, const ElementVector<T, kWidth>& dy_vector,
                            const ElementVector<T, kWidth>& x_vector) {
    widen<kWidth>(dy_vector, dy);
    widen<kWidth>(x_vector, x);
    widen<kWidth>(load_vector<kWidth>(a.weight + column), weight);
  }

  /// Adds its part of the sums of dy w and dy w x^.
  VH_HOST_DEVICE void add_to(NormMeans<F>& sums, NormStatistics<F> statistics) const {
    VH_UNROLL
    for (int k = 0; k < kWidth; ++k) {
      const F product = dy[k] * weight[k];
      sums.gradient += product;
      sums.product += product * normalized(x[k], statistics);
    }
  }

  /// Writes dx, and adds it as rounded to the sums of its columns unless they are null.
  VH_HOST_DEVICE void write_gradient(const NormBackward<T>& a, int64_t element, NormStatistics<F> statistics,
                                     NormMeans<F> means, const ElementVector<T, kWidth>& residual, F* dx_sums) const {
    ElementVector<T, kWidth> dx;
    VH_UNROLL
    for (int k = 0; k < kWidth; ++k) {
      F value = norm_gradient(dy[k], x[k], statistics, weight[k], means);
      if (a.residual_gradient != nullptr) {
        value += static_cast<F>(residual[k]);
      }
      dx[k] = static_cast<T>(value);
      if (dx_sums != nullptr) {
        dx_sums[k] += static_cast<F>(dx[k]);
      }
    }
    store_vector(a.dx + element, dx);
  }

  /// Adds to the sums of its columns.
  VH_HOST_DEVICE void add_to(F* weight_sums, F* bias_sums, NormStatistics<F> statistics) const {
    VH_UNROLL
    for (int k = 0; k < kWidth; ++k) {
      weight_sums[k] += dy[k] * normalized(x[k], statistics);
      bias_sums[k] += dy[k];
    }
  }
};

/// A thread's vectors of the arrays that backward reads: in registers, or where a kernel has put them before. Of a
/// vector that lies outside the row nothing is read.
template <class T, int kWidth, int kVectors, class RowThreads>
class RowInRegisters {
 public:
  using Vector = ElementVector<T, kWidth>;

  VH_HOST_DEVICE RowInRegisters(const NormBackward<T>& a, int64_t row, const RowThreads& threads) : threads_(threads) {
    const int64_t begin = row * a.features;
    for_columns<kWidth, kVectors>(a.features, threads, [&](int v, int64_t column) {
      dy_[v] = load_vector<kWidth>(a.dy + begin + column);
      x_[v] = load_vector<kWidth>(a.x + begin + column);
      if (a.residual_gradient != nullptr) {
        residual_[v] = load_vector<kWidth>(a.residual_gradient + begin + column);
      }
      threads.forget(dy_[v]);
      threads.forget(x_[v]);
      threads.forget(residual_[v]);
    });
  }

  VH_HOST_DEVICE const Vector& dy(int v) { return forgotten(dy_[v]); }
  VH_HOST_DEVICE const Vector& x(int v) { return forgotten(x_[v]); }
  /// Of the residual's gradient; anything where there is none.
  VH_HOST_DEVICE const Vector& residual(int v) { return forgotten(residual_[v]); }

 private:
  VH_HOST_DEVICE const Vector& forgotten(Vector& vector) {
    threads_.forget(vector);
    return vector;
  }

  Vector dy_[kVectors];
  Vector x_[kVectors];
  Vector residual_[kVectors] = {};
  const RowThreads& threads_;
};

/// Backward of a row of which `vectors` (as RowInRegisters) has what is read: memory is read once. `kSumsDx`: whether
/// dx is added up.
template <int kWidth, int kVectors, bool kSumsDx, class T, class RowThreads, class Vectors>
VH_HOST_DEVICE inline void norm_gradient_of_row(const NormBackward<T>& a, int64_t row, const RowThreads& threads,
                                                Vectors& vectors, NormSums<ComputeType<T>, kWidth * kVectors>& sums) {
  using F = ComputeType<T>;
  const NormStatistics<F> statistics{a.mean[row], a.rstd[row]};
  NormMeans<F> means{F(0), F(0)};
  for_columns<kWidth, kVectors>(a.features, threads, [&](int v, int64_t column) {
    const NormVector<kWidth, T> vector(a, column, vectors.dy(v), vectors.x(v));
    vector.add_to(means, statistics);
    vector.add_to(sums.weight + v * kWidth, sums.bias + v * kWidth, statistics);
  });
  means.gradient = threads.sum(means.gradient) / static_cast<F>(a.features);
  means.product = threads.sum(means.product) / static_cast<F>(a.features);
  for_columns<kWidth, kVectors>(a.features, threads, [&](int v, int64_t column) {
    const NormVector<kWidth, T> vector(a, column, vectors.dy(v), vectors.x(v));
    vector.write_gradient(a, row * a.features + column, statistics, means, vectors.residual(v),
                          kSumsDx ? sums.added_bias + v * kWidth : nullptr);
  });
}

template <int kWidth, int kVectors, class T, class RowThreads>
VH_HOST_DEVICE inline void norm_gradient_short_row(const NormBackward<T>& a, int64_t row, const RowThreads& threads,
                                                   NormSums<ComputeType<T>, kWidth * kVectors>& sums) {
  RowInRegisters<T, kWidth, kVectors, RowThreads> vectors(a, row, threads);
  norm_gradient_of_row<kWidth, kVectors, false>(a, row, threads, vectors, sums);
}

/// Backward of a row of any length. `weight_sums` and `bias_sums` [features] are in memory; no other threads than
/// these add to them.
template <int kWidth, class T, class RowThreads>
VH_HOST_DEVICE inline void norm_gradient_long_row(const NormBackward<T>& a, int64_t row, const RowThreads& threads,
                                                  ComputeType<T>* weight_sums, ComputeType<T>* bias_sums) {
  using F = ComputeType<T>;
  const int64_t begin = row * a.features;
  const int64_t stride = static_cast<int64_t>(threads.size()) * kWidth;
  const NormStatistics<F> statistics{a.mean[row], a.rstd[row]};
  const auto vector_at = [&](int64_t column) {
    return NormVector<kWidth, T>(a, column, load_vector<kWidth>(a.dy + begin + column),
                                 load_vector<kWidth>(a.x + begin + column));
  };
  NormMeans<F> means{F(0), F(0)};
  for (int64_t column = column_of<kWidth>(0, threads); column < a.features; column += stride) {
    vector_at(column).add_to(means, statistics);
  }
  means.gradient = threads.sum(means.gradient) / static_cast<F>(a.features);
  means.product = threads.sum(means.product) / static_cast<F>(a.features);
  for (int64_t column = column_of<kWidth>(0, threads); column < a.features; column += stride) {
    const NormVector<kWidth, T> vector = vector_at(column);
    vector.add_to(weight_sums + column, bias_sums + column, statistics);
    const T* const residual = a.residual_gradient != nullptr ? a.residual_gradient : a.dy;  // of dy nothing is used
    vector.write_gradient(a, begin + column, statistics, means, load_vector<kWidth>(residual + begin + column),
                          nullptr);
  }
}

}  // namespace vit_hybrid::kernels
