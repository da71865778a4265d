// Conversion loops: bf16 by integer arithmetic that compilers turn into vectors, fp16 by the processor's instructions.
#include "src/base/half_conversion.h"

#include <bit>
#include <cstring>

#include "src/base/instruction_sets.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace vit_hybrid {

namespace {

// bf16 is the upper half of fp32: what is cut off is added as a carry where it is more than half of the last digit, or
// just half and the digit is odd. A NaN must not become infinite by that: its first digit is set.
inline __attribute__((always_inline)) uint16_t to_bfloat16_bits(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t rounded = bits + 0x7FFF + ((bits >> 16) & 1);
  const bool is_nan = (bits & 0x7FFFFFFF) > 0x7F800000;
  return static_cast<uint16_t>(is_nan ? 0x7FC0 : rounded >> 16);
}

#if defined(__x86_64__)

constexpr int64_t kWidth = 8;  // numbers of a conversion instruction

__attribute__((target("avx,f16c"))) int64_t convert_vectors(const c10::Half* from, float* to, int64_t count) {
  int64_t i = 0;
  for (; i + kWidth <= count; i += kWidth) {
    const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i));
    _mm256_storeu_ps(to + i, _mm256_cvtph_ps(halves));
  }
  return i;
}

__attribute__((target("avx,f16c"))) int64_t convert_vectors(const float* from, c10::Half* to, int64_t count) {
  int64_t i = 0;
  for (; i + kWidth <= count; i += kWidth) {
    const __m128i halves = _mm256_cvtps_ph(_mm256_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i), halves);
  }
  return i;
}

// Every processor with AVX2 has the conversions of F16C.
bool has_conversions() {
  static const bool has = __builtin_cpu_supports("avx2") != 0;
  return has;
}

#endif

template <class From, class To>
void convert_with_vectors(const From* from, To* to, int64_t count) {
  int64_t done = 0;
#if defined(__x86_64__)
  if (has_conversions()) {
    done = convert_vectors(from, to, count);
  }
#endif
  for (int64_t i = done; i < count; ++i) {
    to[i] = static_cast<To>(from[i]);
  }
}

}  // namespace

VH_VERSIONS void convert(const c10::BFloat16* from, float* to, int64_t count) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) {
    to[i] = std::bit_cast<float>(static_cast<uint32_t>(from[i].x) << 16);
  }
}

VH_VERSIONS void convert(const float* from, c10::BFloat16* to, int64_t count) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) {
    to[i].x = to_bfloat16_bits(from[i]);
  }
}

void convert(const c10::Half* from, float* to, int64_t count) {
  convert_with_vectors(from, to, count);
}

void convert(const float* from, c10::Half* to, int64_t count) {
  convert_with_vectors(from, to, count);
}

}  // namespace vit_hybrid
