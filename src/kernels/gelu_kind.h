// GeluKind: which of its two functions GELU is.
#pragma once

namespace vit_hybrid::kernels {

/// GELU is z Phi(z) (D. Hendrycks, K. Gimpel, "Gaussian Error Linear Units", 2016, section 2). kErf: Phi is the normal
/// distribution. kTanh: 0.5 (1 + tanh(sqrt(2 / pi) (z + 0.044715 z^3))) stands for it, off by up to 2e-4, and what is
/// called phi is its derivative.
enum class GeluKind { kErf, kTanh };

}  // namespace vit_hybrid::kernels
