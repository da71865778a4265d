// FloatRow: a row of any float type as kernels on the host compute with it: half-length types in fp32, others as they
// are.
#pragma once

#include <c10/core/ScalarType.h>
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <cstdint>
#include <type_traits>
#include <vector>

#include "src/base/error.h"
#include "src/kernels/half_conversion.h"

namespace vit_hybrid::kernels {

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
