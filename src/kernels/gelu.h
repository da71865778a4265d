// GELU, with erf or tanh (GeluKind), forward and backward: of tensors, and of rows of the host.
#pragma once

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <cstdint>

namespace at {
class Tensor;
}

namespace vit_hybrid::kernels {

/// GELU is z Phi(z) (D. Hendrycks, K. Gimpel, "Gaussian Error Linear Units", 2016, section 2). kErf: Phi is the normal
/// distribution. kTanh: 0.5 (1 + tanh(sqrt(2 / pi) (z + 0.044715 z^3))) stands for it, off by up to 2e-4, and what is
/// called phi is its derivative.
enum class GeluKind { kErf, kTanh };

/// z Phi(z), elementwise. Half-length types: in fp32, rounded once.
at::Tensor gelu(const at::Tensor& z, GeluKind kind);

/// The gradient of z [R, M] from that of gelu(z): dy (Phi(z) + z phi(z)). Adds its sum over the rows into
/// `bias_gradient` [M] unless that is undefined, in the same pass over memory.
at::Tensor gelu_backward(const at::Tensor& dy, const at::Tensor& z, GeluKind kind, const at::Tensor& bias_gradient);

/// The same two on a GPU, the sums in a fixed order.
at::Tensor device_gelu(const at::Tensor& z, GeluKind kind);
at::Tensor device_gelu_backward(const at::Tensor& dy, const at::Tensor& z, GeluKind kind,
                                const at::Tensor& bias_gradient);

// Rows of the host, for tensors and for the products of the MLP.
//
// GELU is z Phi(z), with Phi and phi as GeluKind has them. In fp32 Phi is off by less than 2e-7 (erf by 4e-7) and
// Phi + z phi by less than 5e-7. fp16 and bf16 have the bits of the fp32 loops, rounded to nearest; but with
// AVX512-BF16 bf16 takes shorter polynomials (bf16_unit). With erf GELU then is off, before it is rounded, by less
// than 1e-4 of its value for z > -3 and 1.1e-6 below, its derivative by max(1.3e-4 of its value, 2.7e-6); with tanh by
// 2e-4 for z > -2.5 and 2e-6 below, the derivative by max(2.1e-4, 4.2e-6). Results below 1.2e-38 are zeros.

/// y = z Phi(z). y may be z itself.
void gelu_row(const float* z, float* y, int64_t count, GeluKind kind);
void gelu_row(const double* z, double* y, int64_t count, GeluKind kind);
void gelu_row(const c10::BFloat16* z, c10::BFloat16* y, int64_t count, GeluKind kind);
void gelu_row(const c10::Half* z, c10::Half* y, int64_t count, GeluKind kind);

/// dz = dy (Phi(z) + z phi(z)), and sums <- sums + dz before it is rounded, for each of the rows [num_rows, count], one
/// after the other. dz may be dy or z.
void gelu_backward_rows(const float* dy, const float* z, float* dz, int64_t num_rows, float* sums, int64_t count,
                        GeluKind kind);
void gelu_backward_rows(const double* dy, const double* z, double* dz, int64_t num_rows, double* sums, int64_t count,
                        GeluKind kind);
void gelu_backward_rows(const c10::BFloat16* dy, const c10::BFloat16* z, c10::BFloat16* dz, int64_t num_rows,
                        float* sums, int64_t count, GeluKind kind);
void gelu_backward_rows(const c10::Half* dy, const c10::Half* z, c10::Half* dz, int64_t num_rows, float* sums,
                        int64_t count, GeluKind kind);

/// y = gelu(sums + bias), rounded once. bf16: only where has_avx512_bf16(), as the products whose end it is.
void store_gelu_row(const float* sums, const float* bias, float* y, int64_t count, GeluKind kind);
void store_gelu_row(const float* sums, const float* bias, c10::BFloat16* y, int64_t count, GeluKind kind);

}  // namespace vit_hybrid::kernels
