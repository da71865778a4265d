// The intrinsics of AVX-512, for files that choose at run time.
#pragma once

#if defined(__x86_64__)

#include <immintrin.h>

#include <algorithm>
#include <cstdint>

#include "src/base/instruction_sets.h"

// For the rest of the file: GCC 12 warns of registers that its own intrinsics leave without a value on purpose.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

// VH_BF16_INLINE: a piece of the functions that are VH_AVX512_BF16.
#define VH_BF16_INLINE VH_AVX512_BF16 inline __attribute__((always_inline))

namespace vit_hybrid::kernels {

/// Elements of the register of 16 fp32 numbers that starts `left` elements before the end.
VH_BF16_INLINE __mmask16 first_elements(int64_t left) {
  return static_cast<__mmask16>((uint32_t{1} << std::clamp<int64_t>(left, 0, 16)) - 1);
}

}  // namespace vit_hybrid::kernels

#endif
