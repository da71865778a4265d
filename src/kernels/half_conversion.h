// Conversion of arrays between fp32 and the half-length types, at memory speed.
#pragma once

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <bit>
#include <cstdint>

namespace vit_hybrid {

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

}  // namespace vit_hybrid
