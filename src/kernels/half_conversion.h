// Half-length types on the host: conversion of rows to fp32 and back, and rows of any float type as kernels compute
// with them.
#pragma once

#include <c10/core/ScalarType.h>
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <bit>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "src/base/error.h"

namespace vit_hybrid::kernels {

/// A number rounded to bf16 as c10 does it, without its branch, which no compiler turns into vectors. bf16 is the upper
/// half of fp32: what is cut off is added as a carry where it is more than half of the last digit, or just half and the
/// digit is odd. A NaN must not become infinite by that.
inline __attribute__((always_inline)) uint16_t bfloat16_bits(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t rounded = bits + 0x7FFF + ((bits >> 16) & 1);
  return static_cast<uint16_t>((bits & 0x7FFFFFFF) > 0x7F800000 ? 0x7FC0 : rounded >> 16);
}

// Arrays of `count` elements that do not overlap. Numbers are rounded to the nearest, ties to even; beyond the largest
// of the type they become infinite, and NaN stays NaN. The result is that of the scalar conversion of c10, element by
// element.
void convert(const c10::BFloat16* from, float* to, int64_t count);
void convert(const float* from, c10::BFloat16* to, int64_t count);
void convert(const c10::Half* from, float* to, int64_t count);
void convert(const float* from, c10::Half* to, int64_t count);

/// Numbers from the start of a cache line on: a vector as long as a line touches no other.
template <class F>
class AlignedRow {
 public:
  explicit AlignedRow(int64_t count) : lines_((static_cast<size_t>(count) + Line::kCount - 1) / Line::kCount) {}
  F* data() { return lines_.empty() ? nullptr : lines_.front().numbers; }

 private:
  struct alignas(64) Line {
    static constexpr size_t kCount = 64 / sizeof(F);
    F numbers[kCount];
  };

  std::vector<Line> lines_;
};

template <class T>
class FloatRow {
 public:
  using Float = std::conditional_t<std::is_same_v<T, double>, double, float>;
  static constexpr bool kIsConverted = !std::is_same_v<T, Float>;

  /// For up to `capacity` elements at a time.
  explicit FloatRow(int64_t capacity) : buffer_(kIsConverted ? capacity : 0) {}

  /// `count` elements of `row`; overwritten by the next use of this object where they had to be converted.
  const Float* read(const T* row, int64_t count) {
    if constexpr (kIsConverted) {
      convert(row, buffer_.data(), count);
      return buffer_.data();
    } else {
      return row;
    }
  }

 private:
  AlignedRow<Float> buffer_;
};

/// Calls `function` with a zero of the C++ type of `type`: fp32, fp64, bf16 or fp16.
template <class Function>
void with_float_type(at::ScalarType type, const Function& function) {
  switch (type) {
    case at::kFloat:
      return function(float{});
    case at::kDouble:
      return function(double{});
    case at::kBFloat16:
      return function(c10::BFloat16{});
    case at::kHalf:
      return function(c10::Half{});
    default:
      VH_ASSERT(false, std::string("no kernel for ") + c10::toString(type));
  }
}

}  // namespace vit_hybrid::kernels
