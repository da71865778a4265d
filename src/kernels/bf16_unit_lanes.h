// Lanes of bf16 by the instructions of AVX512-BF16: the bits of Lanes<c10::BFloat16> in a fraction of its instructions.
// What reads or writes UnitBFloat16 is VH_AVX512_BF16.
#pragma once

#include "src/base/instruction_sets.h"
#include "src/kernels/lanes.h"

namespace vit_hybrid::kernels {

#if defined(__x86_64__)

struct UnitBFloat16 {
  uint16_t x;
};

// Assembler, because the loops are put together of lambdas that are of no instruction set of their own, and no
// intrinsic can be inlined into those.
template <>
struct Lanes<UnitBFloat16> : HalfLengthLanes {
  // One shuffle: each word to the upper half of a lane, zeros beside it.
  static VH_INLINE void load(const UnitBFloat16* from, V& v) {
    constexpr Pair kOrder = {0, 0, 0, 1, 0, 2,  0, 3,  0, 4,  0, 5,  0, 6,  0, 7,
                             0, 8, 0, 9, 0, 10, 0, 11, 0, 12, 0, 13, 0, 14, 0, 15};
    detail::Words words;
    std::memcpy(&words, from, sizeof(words));
    asm("vpermw %g1, %2, %0%{%3%}%{z%}" : "=v"(v) : "v"(words), "v"(kOrder), "Yk"(0xAAAAAAAAU));
  }

  static VH_INLINE void store(UnitBFloat16* to, const V& v) {
    Pair words;
    if (round(v, v, words)) {
      Lanes<c10::BFloat16>::store(reinterpret_cast<c10::BFloat16*>(to), v);
    } else {
      std::memcpy(static_cast<void*>(to), &words, kWidth * sizeof(*to));
    }
  }

  static VH_INLINE void store_pair(UnitBFloat16* to, const V& first, const V& second) {
    Pair words;
    if (round(first, second, words)) {
      Lanes<c10::BFloat16>::store(reinterpret_cast<c10::BFloat16*>(to), first);
      Lanes<c10::BFloat16>::store(reinterpret_cast<c10::BFloat16*>(to) + kWidth, second);
    } else {
      std::memcpy(static_cast<void*>(to), &words, sizeof(words));
    }
  }

 private:
  typedef uint16_t Pair __attribute__((vector_size(64)));

  // True where the unit rounds otherwise than the rest of the program: it makes zeros of subnormal numbers, and keeps
  // the digits of a NaN. Rounding two registers at once is the faster of its instructions for one, too.
  static VH_INLINE bool round(const V& first, const V& second, Pair& words) {
    bool is_special;
    asm("vfpclassps $0xA1, %2, %%k1\n\t"
        "vfpclassps $0xA1, %3, %%k2\n\t"
        "vcvtne2ps2bf16 %2, %3, %0\n\t"
        "kortestw %%k1, %%k2"
        : "=v"(words), "=@ccnz"(is_special)
        : "v"(first), "v"(second)
        : "k1", "k2");
    return __builtin_expect(is_special, 0);
  }
};

#else

using UnitBFloat16 = c10::BFloat16;

#endif

}  // namespace vit_hybrid::kernels
