// Conversion loops: the processor's instructions where it has some, or else, for bf16, integer arithmetic that
// compilers turn into vectors.
#include "src/kernels/half_conversion.h"

#include <algorithm>

#include "src/base/instruction_sets.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace vit_hybrid::kernels {

namespace {

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
bool has_fp16_conversions() {
  static const bool has = __builtin_cpu_supports("avx2") != 0;
  return has;
}

// Stops at numbers that the instruction rounds otherwise than c10: of a NaN it keeps digits, and of a subnormal number
// it makes 0.
__attribute__((target("avx512f,avx512dq,avx512bf16"))) int64_t convert_vectors(const float* from, c10::BFloat16* to,
                                                                               int64_t count) {
  constexpr int64_t kBoth = 32;  // numbers of two registers
  constexpr int kSpecial = 0xA1;
  int64_t i = 0;
  for (; i + kBoth <= count; i += kBoth) {
    const __m512 low = _mm512_loadu_ps(from + i);
    const __m512 high = _mm512_loadu_ps(from + i + kBoth / 2);
    if (__builtin_expect(_mm512_fpclass_ps_mask(low, kSpecial) | _mm512_fpclass_ps_mask(high, kSpecial), 0) != 0) {
      break;
    }
    _mm512_storeu_si512(to + i, reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(high, low)));
  }
  return i;
}

#endif

template <class From, class To>
void convert_fp16(const From* from, To* to, int64_t count) {
  int64_t done = 0;
#if defined(__x86_64__)
  if (has_fp16_conversions()) {
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

VH_VERSIONS static void round_to_bfloat16(const float* from, c10::BFloat16* to, int64_t count) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) {
    to[i].x = bfloat16_bits(from[i]);
  }
}

void convert(const float* from, c10::BFloat16* to, int64_t count) {
#if defined(__x86_64__)
  constexpr int64_t kChunk = 128;  // numbers that are rounded without the instruction where one of them is special
  while (has_avx512_bf16() && count > 0) {
    const int64_t done = convert_vectors(from, to, count);
    const int64_t others = std::min(count - done, kChunk);
    round_to_bfloat16(from + done, to + done, others);
    from += done + others;
    to += done + others;
    count -= done + others;
  }
#endif
  round_to_bfloat16(from, to, count);
}

void convert(const c10::Half* from, float* to, int64_t count) {
  convert_fp16(from, to, count);
}

void convert(const float* from, c10::Half* to, int64_t count) {
  convert_fp16(from, to, count);
}

}  // namespace vit_hybrid::kernels
