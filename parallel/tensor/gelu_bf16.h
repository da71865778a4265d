// GELU of bf16 rows on processors: its polynomials, and the loops for each set of instructions, of which linear_rows.h
// takes the fastest that the processor has.
#pragma once

#include <c10/util/BFloat16.h>

#include <cstdint>

namespace vit_hybrid::tensor {

// Beyond its bend GELU is max(z, 0), and its derivative 0 or 1. What is between, with a = |z|, is
//
//   z Phi(z)    = max(z, 0) - a Phi(-a)
//   (z Phi(z))' = w(a) for z < 0, 1 - w(a) for z > 0;  w(a) = Phi(-a) - a phi(a)
//
// Phi(-a) and w(a) / (r - a), where w(r) = 0, fall through nine powers of ten before they no longer matter; it takes
// long polynomials to follow them. Their eighth roots fall nearly along a line. p and q are the polynomials of fifth
// degree for which the largest error of p(a)^8 a and of (r - a) q(a)^8, divided by max(2^-11 |exact|, 1e-5), is
// smallest over 0 <= a <= kTailEnd: 0.11 and 0.27, computed in fp32, where half a unit of bf16 is 4 to 8. They are
// minimax fits of the eighth roots, an error e of p making one of 8 p^7 e in its power.

constexpr float kTailEnd = 6.0f;  ///< a is bounded by it: both tails are below 1e-10 there, and not quite 0

/// Of p, lowest first.
constexpr float kTailRoot[] = {0.9169962f, -0.09140655f, -0.031907484f, -0.0009584428f, 0.0018896727f, -0.00018509332f};

/// Of q, lowest first.
constexpr float kSlopeRoot[] = {0.9502814f,    -0.031354524f, -0.046018228f,
                                -0.002857141f, 0.0026195054f, -0.00023660147f};
constexpr float kSlopeZero = 0.75179154f;  ///< r

// What linear_rows.h says of these rows.

/// For any processor; the widest vectors that it has are taken.
namespace portable {

void gelu_row(const c10::BFloat16* z, c10::BFloat16* y, int64_t count);
void gelu_backward_rows(const c10::BFloat16* dy, const c10::BFloat16* z, c10::BFloat16* dz, int64_t num_rows,
                        float* sums, int64_t count);
void store_gelu_row(const float* sums, const float* bias, c10::BFloat16* y, int64_t count);

}  // namespace portable

/// By the instructions of AVX512-BF16, only where has_avx512_bf16(). The same bits, but that the unit makes zeros of
/// subnormal numbers (below 1.2e-38), as its products do.
namespace bf16_unit {

void gelu_row(const c10::BFloat16* z, c10::BFloat16* y, int64_t count);
void gelu_backward_rows(const c10::BFloat16* dy, const c10::BFloat16* z, c10::BFloat16* dz, int64_t num_rows,
                        float* sums, int64_t count);
void store_gelu_row(const float* sums, const float* bias, c10::BFloat16* y, int64_t count);

}  // namespace bf16_unit

}  // namespace vit_hybrid::tensor
