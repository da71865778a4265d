// The gradient of LayerNorm for one row by the lanes that share it, and for its weights by column.
#pragma once

#include <cstdint>

#include "src/kernels/norm_lanes.h"

namespace vit_hybrid::kernels {

/// What a lane adds up over its rows for the weight and bias of the columns it has, in registers.
template <class F, int kElements>
struct WeightSums {
  F weight[kElements];
  F bias[kElements];

  VH_HOST_DEVICE void clear() {
    VH_UNROLL
    for (int k = 0; k < kElements; ++k) {
      weight[k] = bias[k] = F(0);
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

  /// Writes dx to `to`.
  VH_HOST_DEVICE void write_gradient(const NormBackward<T>& a, int64_t element, NormStatistics<F> statistics,
                                     NormMeans<F> means, const ElementVector<T, kWidth>& residual) const {
    ElementVector<T, kWidth> dx;
    VH_UNROLL
    for (int k = 0; k < kWidth; ++k) {
      F value = norm_gradient(dy[k], x[k], statistics, weight[k], means);
      if (a.residual_gradient != nullptr) {
        value += static_cast<F>(residual[k]);
      }
      dx[k] = static_cast<T>(value);
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

/// Backward of a row that the lanes' registers hold: memory is read once.
template <int kWidth, int kVectors, class T, class Lanes>
VH_HOST_DEVICE inline void norm_gradient_short_row(const NormBackward<T>& a, int64_t row, const Lanes& lanes,
                                                   WeightSums<ComputeType<T>, kWidth * kVectors>& sums) {
  using F = ComputeType<T>;
  const int64_t begin = row * a.features;
  ElementVector<T, kWidth> dy[kVectors];
  ElementVector<T, kWidth> x[kVectors];
  ElementVector<T, kWidth> residual[kVectors] = {};
  for_columns<kWidth, kVectors>(a.features, lanes, [&](int v, int64_t column) {
    dy[v] = load_vector<kWidth>(a.dy + begin + column);
    x[v] = load_vector<kWidth>(a.x + begin + column);
    if (a.residual_gradient != nullptr) {
      residual[v] = load_vector<kWidth>(a.residual_gradient + begin + column);
    }
    lanes.forget(dy[v]);
    lanes.forget(x[v]);
    lanes.forget(residual[v]);
  });
  const NormStatistics<F> statistics{a.mean[row], a.rstd[row]};
  NormMeans<F> means{F(0), F(0)};
  for_columns<kWidth, kVectors>(a.features, lanes, [&](int v, int64_t column) {
    const NormVector<kWidth, T> vector(a, column, dy[v], x[v]);
    vector.add_to(means, statistics);
    vector.add_to(sums.weight + v * kWidth, sums.bias + v * kWidth, statistics);
  });
  means.gradient = lanes.sum(means.gradient) / static_cast<F>(a.features);
  means.product = lanes.sum(means.product) / static_cast<F>(a.features);
  for_columns<kWidth, kVectors>(a.features, lanes, [&](int v, int64_t column) {
    lanes.forget(dy[v]);
    lanes.forget(x[v]);
    lanes.forget(residual[v]);
    const NormVector<kWidth, T> vector(a, column, dy[v], x[v]);
    vector.write_gradient(a, begin + column, statistics, means, residual[v]);
  });
}

/// Backward of a row of any length. `weight_sums` and `bias_sums` [features] are in memory; no other lanes than these
/// add to them.
template <int kWidth, class T, class Lanes>
VH_HOST_DEVICE inline void norm_gradient_long_row(const NormBackward<T>& a, int64_t row, const Lanes& lanes,
                                                  ComputeType<T>* weight_sums, ComputeType<T>* bias_sums) {
  using F = ComputeType<T>;
  const int64_t begin = row * a.features;
  const int64_t stride = static_cast<int64_t>(lanes.size()) * kWidth;
  const NormStatistics<F> statistics{a.mean[row], a.rstd[row]};
  const auto vector_at = [&](int64_t column) {
    return NormVector<kWidth, T>(a, column, load_vector<kWidth>(a.dy + begin + column),
                                 load_vector<kWidth>(a.x + begin + column));
  };
  NormMeans<F> means{F(0), F(0)};
  for (int64_t column = column_of<kWidth>(0, lanes); column < a.features; column += stride) {
    vector_at(column).add_to(means, statistics);
  }
  means.gradient = lanes.sum(means.gradient) / static_cast<F>(a.features);
  means.product = lanes.sum(means.product) / static_cast<F>(a.features);
  for (int64_t column = column_of<kWidth>(0, lanes); column < a.features; column += stride) {
    const NormVector<kWidth, T> vector = vector_at(column);
    vector.add_to(weight_sums + column, bias_sums + column, statistics);
    const T* const residual = a.residual_gradient != nullptr ? a.residual_gradient : a.dy;  // of dy nothing is used
    vector.write_gradient(a, begin + column, statistics, means, load_vector<kWidth>(residual + begin + column));
  }
}

}  // namespace vit_hybrid::kernels
