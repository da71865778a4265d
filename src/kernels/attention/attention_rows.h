// The loops over attention scores that the blocked attention runs between its matrix products, in the type it computes
// in.
#pragma once

#include <c10/util/BFloat16.h>

#include <cstdint>

#include "src/kernels/element_vector.h"

namespace vit_hybrid::kernels {

/// Rows of scores lie this many elements apart or a multiple of it, so that vectors may write past a row's end.
inline constexpr int64_t kRowAlignment = 32;

/// Some queries against some keys in forward: the softmax over the keys so far (M. Milakov, N. Gimelshein, "Online
/// normalizer calculation for softmax", 2018).
template <class T>
struct SoftmaxTile {
  using Compute = ComputeType<T>;

  int64_t queries;
  int64_t keys;
  int64_t stride;         ///< between the rows (queries) of both matrices
  const Compute* scores;  ///< s = q k^T
  Compute scale;          ///< 1 / sqrt(d)
  T* weights;             ///< exp(scale s - maximum); fp32 and fp64: may be `scores`
  Compute* maxima;        ///< by query, of the scaled scores so far: brought up to date
  Compute* sums;          ///< by query, of the exponentials so far: brought up to date
  Compute* corrections;   ///< by query: what all that came before is multiplied by, as `sums` is here
};

/// The weights of the tile. Their sums are those of the exponentials before they are rounded to T and before dropout,
/// so that the logsumexp, from which backward computes the weights again, is the softmax's own. The exponential of fp32
/// is off by at most 3e-7, and at least 1e-38. In bf16 what lies behind a row, up to its alignment, becomes zero.
void update_softmax(const SoftmaxTile<float>& tile);
void update_softmax(const SoftmaxTile<double>& tile);
void update_softmax(const SoftmaxTile<c10::BFloat16>& tile);

/// x[row] <- corrections[row] x[row] for rows of n elements, one behind the other.
void correct_rows(float* x, int64_t rows, int64_t n, const float* corrections);
void correct_rows(double* x, int64_t rows, int64_t n, const double* corrections);

/// x <- x + y.
void add_row(float* x, const float* y, int64_t n);
void add_row(double* x, const double* y, int64_t n);

/// x <- x where keep is 1, 0 where it is 0.
void mask_row(float* x, const uint8_t* keep, int64_t n);
void mask_row(double* x, const uint8_t* keep, int64_t n);
void mask_row(c10::BFloat16* x, const uint8_t* keep, int64_t n);

/// to <- factor x, rounded once.
void store_row(const float* x, int64_t n, float factor, float* to);
void store_row(const double* x, int64_t n, double factor, double* to);
void store_row(const float* x, int64_t n, float factor, c10::BFloat16* to);

/// Sum of x y.
float row_product(const float* x, const float* y, int64_t n);
double row_product(const double* x, const double* y, int64_t n);
float row_product(const c10::BFloat16* x, const c10::BFloat16* y, int64_t n);

/// Some queries against some keys in backward.
template <class T>
struct ScoreTile {
  using Compute = ComputeType<T>;

  int64_t queries;
  int64_t keys;
  int64_t stride;            ///< between the rows (queries) of all matrices below
  Compute* scores;           ///< s = q k^T
  Compute* gradients;        ///< dp = dout v^T
  const Compute* logsumexp;  ///< by query
  const Compute* delta;      ///< by query: sum over the features of dout out
  const uint8_t* keep;       ///< the mask of dropout, or null
  Compute kept_scale;        ///< 1 / (1 - rate), or 1
  Compute scale;             ///< 1 / sqrt(d)
  T* weights;                ///< what multiplies dout from the right; may be `scores`
  T* dscores;                ///< what multiplies k from the left; may be `gradients`
  T* dscores_right;          ///< the same numbers as right operand; may be `gradients`
};

/// With p = exp(scale s - logsumexp) and f = keep / (1 - rate): weights <- f p, dscores <- p (f dp - delta), of which
/// scale is left to be multiplied. In bf16 `weights` and `dscores_right` come in pairs of rows (pack_pairs() in
/// packing.h), an odd last one beside zeros, and what lies behind the rows, up to their alignment, becomes zero.
void differentiate(const ScoreTile<float>& tile);
void differentiate(const ScoreTile<double>& tile);
void differentiate(const ScoreTile<c10::BFloat16>& tile);

}  // namespace vit_hybrid::kernels
