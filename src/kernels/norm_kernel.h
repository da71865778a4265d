// The arithmetic of LayerNorm and of residual sums for one element, for host loops and device kernels alike.
#pragma once

#include "src/base/host_device.h"

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

}  // namespace vit_hybrid::kernels
