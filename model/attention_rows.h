// The loops over rows of attention scores that the blocked attention runs between its matrix products.
#pragma once

#include <cstdint>

namespace vit_hybrid::model {

/// Largest of n >= 1 numbers; NaN may be lost, exponentials() finds it.
float row_max(const float* x, int64_t n);
double row_max(const double* x, int64_t n);

/// x <- exp(scale x - shift), for exponents up to 80 (fp32: relative error below 3e-7, and 1e-38 instead of less);
/// returns the sum.
float exponentials(float* x, int64_t n, float scale, float shift);
double exponentials(double* x, int64_t n, double scale, double shift);

/// x <- factor x.
void scale_row(float* x, int64_t n, float factor);
void scale_row(double* x, int64_t n, double factor);

/// x <- x + y.
void add_row(float* x, const float* y, int64_t n);
void add_row(double* x, const double* y, int64_t n);

/// x <- x where keep is 1, 0 where it is 0.
void mask_row(float* x, const uint8_t* keep, int64_t n);
void mask_row(double* x, const uint8_t* keep, int64_t n);

/// One key against n queries in backward, s being its scores and dp the gradient of its weights:
/// p = exp(scale s - logsumexp), s <- p, dp <- scale p (dp - delta).
void backward_row(float* s, float* dp, const float* logsumexp, const float* delta, int64_t n, float scale);
void backward_row(double* s, double* dp, const double* logsumexp, const double* delta, int64_t n, double scale);

/// The same under dropout: with f = keep / (1 - rate), s <- f p, dp <- scale p (f dp - delta).
void backward_row(float* s, float* dp, const float* logsumexp, const float* delta, const uint8_t* keep,
                  float kept_scale, int64_t n, float scale);
void backward_row(double* s, double* dp, const double* logsumexp, const double* delta, const uint8_t* keep,
                  double kept_scale, int64_t n, double scale);

}  // namespace vit_hybrid::model
