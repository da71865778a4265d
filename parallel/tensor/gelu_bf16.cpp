// The loops for any processor, compiled for several instruction sets; the program takes the widest at its start.
#include "parallel/tensor/gelu_bf16.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "src/base/half_conversion.h"
#include "src/base/instruction_sets.h"

namespace vit_hybrid::tensor::portable {

namespace {

using c10::BFloat16;

#define VH_INLINE inline __attribute__((always_inline))
#define VH_INLINED __attribute__((always_inline))  // of lambdas

VH_INLINE float load(BFloat16 from) {
  return std::bit_cast<float>(static_cast<uint32_t>(from.x) << 16);
}

// A NaN stays one.
VH_INLINE float bounded_magnitude(float z) {
  const float a = std::fabs(z);
  return kTailEnd < a ? kTailEnd : a;
}

VH_INLINE float fourth_power(const float (&coefficients)[6], float a) {
  float sum = coefficients[5];
#pragma GCC unroll 5
  for (int i = 4; i >= 0; --i) {
    sum = sum * a + coefficients[i];
  }
  const float square = sum * sum;
  return square * square;
}

VH_INLINE float gelu(float z) {
  const float a = bounded_magnitude(z);
  const float power = fourth_power(kTailRoot, a);
  const float bend = z < 0.0f ? 0.0f : z;
  return bend - a * power * power;
}

// The sign bit decides on which side of 0 z is.
VH_INLINE float gelu_slope(float z) {
  const float a = bounded_magnitude(z);
  const float power = fourth_power(kSlopeRoot, a);
  const auto negative = static_cast<uint32_t>(std::bit_cast<int32_t>(z) >> 31);  // no bits or all
  const float factor = std::bit_cast<float>(std::bit_cast<uint32_t>(kSlopeZero - a) ^ (~negative & 0x80000000U));
  const float step = std::bit_cast<float>(~negative & std::bit_cast<uint32_t>(1.0f));
  return factor * power * power + step;
}

// y[i] = value(i). A few vectors of values at a time: in one loop with the rounding, compilers make no vectors of them.
template <class Value>
VH_INLINE void store_all(int64_t count, BFloat16* y, const Value& value) {
  constexpr int64_t kChunk = 128;
  for (int64_t begin = 0; begin < count; begin += kChunk) {
    const int64_t size = std::min(kChunk, count - begin);
    float values[kChunk];
#pragma omp simd
    for (int64_t i = 0; i < size; ++i) {
      values[i] = value(begin + i);
    }
#pragma omp simd
    for (int64_t i = 0; i < size; ++i) {
      y[begin + i].x = bfloat16_bits(values[i]);
    }
  }
}

}  // namespace

VH_VERSIONS void gelu_row(const BFloat16* z, BFloat16* y, int64_t count) {
  store_all(count, y, [=](int64_t i) VH_INLINED { return gelu(load(z[i])); });
}

VH_VERSIONS void gelu_backward_rows(const BFloat16* dy, const BFloat16* z, BFloat16* dz, int64_t num_rows, float* sums,
                                    int64_t count) {
  for (int64_t row = 0; row < num_rows; ++row, dy += count, z += count, dz += count) {
    store_all(count, dz, [=](int64_t i) VH_INLINED {
      const float gradient = load(dy[i]) * gelu_slope(load(z[i]));
      sums[i] += gradient;
      return gradient;
    });
  }
}

VH_VERSIONS void store_gelu_row(const float* sums, const float* bias, BFloat16* y, int64_t count) {
  store_all(count, y, [=](int64_t i) VH_INLINED { return gelu(sums[i] + bias[i]); });
}

#undef VH_INLINED
#undef VH_INLINE

}  // namespace vit_hybrid::tensor::portable
