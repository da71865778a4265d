// What the arithmetic of kernels is tried on.
#pragma once

#include <ATen/ops/empty.h>
#include <ATen/ops/full_like.h>

#include <cstdint>
#include <limits>

#include "src/base/random.h"

namespace vit_hybrid::testing {

/// Keyed normal numbers, rounded to `type`.
inline at::Tensor normals(at::IntArrayRef shape, uint64_t key, at::ScalarType type) {
  const at::Tensor values = at::empty(shape, at::kDouble);
  RandomStream(11, Purpose::kTest, key).normals(0, {values.data_ptr<double>(), static_cast<size_t>(values.numel())});
  return values.to(type);
}

template <class T>
constexpr at::ScalarType kType = c10::CppTypeToScalarType<T>::value;

/// What is left in an element that nobody wrote.
inline at::Tensor unwritten(const at::Tensor& like, at::ScalarType type) {
  return at::full_like(like, std::numeric_limits<double>::quiet_NaN(), like.options().dtype(type));
}

}  // namespace vit_hybrid::testing
