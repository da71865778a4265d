// What rounding to the float types allows: the types, their unit roundoffs, and whether a tensor was rounded once.
#pragma once

#include <ATen/OpMathType.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>

#include <vector>

namespace vit_hybrid::testing {

inline const std::vector<at::ScalarType> kFloatTypes = {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf};

inline bool is_half(at::ScalarType type) {
  return type == at::kBFloat16 || type == at::kHalf;
}

/// Largest relative error of rounding to the nearest: 2^-p for p significant bits.
inline double unit_roundoff(at::ScalarType type) {
  switch (type) {
    case at::kDouble:
      return 0x1p-53;
    case at::kFloat:
      return 0x1p-24;
    case at::kHalf:
      return 0x1p-11;
    default:
      return 0x1p-8;  // bf16
  }
}

/// True if each element of `a` is `exact` (double) rounded once to the type of a. `terms` (none negative) are what it
/// was computed from: of them two roundings to fp32 (fp64) come before. Below fp16's normal numbers its last digit
/// counts.
inline bool rounded_once(const at::Tensor& a, const at::Tensor& exact, const at::Tensor& terms) {
  const at::ScalarType type = a.scalar_type();
  const double before = 2.0 * unit_roundoff(at::toOpMathType(type));
  const double subnormal = type == at::kHalf ? 0x1p-25 : 0.0;
  const at::Tensor error = (a.to(at::kDouble) - exact).abs();
  const at::Tensor allowed = exact.abs() * unit_roundoff(type) + terms * before + subnormal;
  return (error <= allowed).all().item<bool>();
}

}  // namespace vit_hybrid::testing
