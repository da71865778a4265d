// GELU, with erf or tanh (GeluKind): forward and backward of tensors.
#pragma once

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

}  // namespace vit_hybrid::kernels
