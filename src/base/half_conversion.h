// Conversion of arrays between fp32 and the half-length types, at memory speed.
#pragma once

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <cstdint>

namespace vit_hybrid {

// Arrays of `count` elements that do not overlap. Numbers are rounded to the nearest, ties to even; beyond the largest
// of the type they become infinite, and NaN stays NaN. The result is that of the scalar conversion of c10, element by
// element.
void convert(const c10::BFloat16* from, float* to, int64_t count);
void convert(const float* from, c10::BFloat16* to, int64_t count);
void convert(const c10::Half* from, float* to, int64_t count);
void convert(const float* from, c10::Half* to, int64_t count);

}  // namespace vit_hybrid
