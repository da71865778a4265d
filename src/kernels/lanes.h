// SIMD on the host: Lanes, vectors of numbers for loops over rows, without intrinsics, bf16 also by the instructions of
// AVX512-BF16; and the intrinsics of AVX-512, for files that choose at run time.
#pragma once

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>

#include "src/base/instruction_sets.h"

#if defined(__x86_64__)
#include <immintrin.h>

// For the rest of the file: GCC 12 warns of registers that its own intrinsics leave without a value on purpose.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#endif

namespace vit_hybrid::kernels {

// Vectors are the compiler's own, so they become what registers the instruction set has. Every function is inlined into
// its caller, which is compiled for several instruction sets: how a vector would be passed never matters. Half-length
// types are fp32 in vectors, and rounded to the nearest, ties to even, when they are stored, as c10 does it: beyond the
// largest number to infinity, NaN to NaN.

#define VH_INLINE inline __attribute__((always_inline))
#define VH_INLINED __attribute__((always_inline))  // of lambdas

template <class T>
struct Lanes;

namespace detail {

typedef uint16_t Words __attribute__((vector_size(32)));
typedef uint32_t Bits __attribute__((vector_size(64)));
typedef float Floats __attribute__((vector_size(64)));

VH_INLINE void load_words(const void* from, Bits& bits) {
  Words words;
  std::memcpy(&words, from, sizeof(words));
  bits = __builtin_convertvector(words, Bits);
}

VH_INLINE void store_words(void* to, const Bits& bits) {
  const Words words = __builtin_convertvector(bits, Words);
  std::memcpy(to, &words, sizeof(words));
}

}  // namespace detail

template <class F>
struct PlainLanes {
  using Float = F;
  typedef F V __attribute__((vector_size(64)));
  static constexpr int64_t kWidth = 64 / sizeof(F);
  static VH_INLINE void load(const F* from, V& v) { std::memcpy(&v, from, sizeof(v)); }
  static VH_INLINE void store(F* to, const V& v) { std::memcpy(to, &v, sizeof(v)); }
};

template <>
struct Lanes<float> : PlainLanes<float> {};

template <>
struct Lanes<double> : PlainLanes<double> {};

// Half-length numbers are computed with as fp32.
struct HalfLengthLanes {
  using Float = float;
  using V = Lanes<float>::V;
  static constexpr int64_t kWidth = Lanes<float>::kWidth;
};

// bf16 is the upper half of fp32: what is cut off is added as a carry where it is more than half of the last digit, or
// just half and the digit is odd. A NaN must not become infinite by that.
template <>
struct Lanes<c10::BFloat16> : HalfLengthLanes {
  static VH_INLINE void load(const c10::BFloat16* from, V& v) {
    detail::Bits bits;
    detail::load_words(from, bits);
    v = reinterpret_cast<V>(bits << 16);
  }

  static VH_INLINE void store(c10::BFloat16* to, const V& v) {
    const auto bits = reinterpret_cast<detail::Bits>(v);
    const detail::Bits rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16;
    const detail::Bits quiet = rounded * 0 + 0x7FC0;
    detail::store_words(to, v != v ? quiet : rounded);  // NOLINT(misc-redundant-expression): true of NaN
  }
};

// fp16 has three more digits and 112 fewer powers of two: shifted into the place of fp32's digits its numbers, the
// subnormal ones too, are too small by 2^112.
template <>
struct Lanes<c10::Half> : HalfLengthLanes {
  static VH_INLINE void load(const c10::Half* from, V& v) {
    detail::Bits bits;
    detail::load_words(from, bits);
    const detail::Bits magnitude = (bits & 0x7FFF) << 13;
    const V number = reinterpret_cast<V>(magnitude) * 0x1p112f;
    const detail::Bits special = magnitude | 0x7F800000;
    const detail::Bits value = magnitude >= 0x0F800000 ? special : reinterpret_cast<detail::Bits>(number);
    v = reinterpret_cast<V>(value | (bits & 0x8000) << 16);
  }

  static VH_INLINE void store(c10::Half* to, const V& v) {
    const auto bits = reinterpret_cast<detail::Bits>(v);
    const detail::Bits magnitude = bits & 0x7FFFFFFF;
    // Normal: as bf16 is rounded, with the exponent moved. Subnormal: adding 1/2 shifts the digits to the end, rounded.
    const detail::Bits normal = (magnitude - 0x38000000 + 0xFFF + ((magnitude >> 13) & 1)) >> 13;
    const detail::Bits subnormal = reinterpret_cast<detail::Bits>(reinterpret_cast<V>(magnitude) + 0.5f) - 0x3F000000;
    const detail::Bits infinite = magnitude * 0 + 0x7C00;
    const detail::Bits quiet = magnitude * 0 + 0x7E00;
    const detail::Bits finite = magnitude < 0x38800000 ? subnormal : normal;
    const detail::Bits large = magnitude > 0x7F800000 ? quiet : infinite;
    const detail::Bits value = magnitude >= 0x477FF000 ? large : finite;
    detail::store_words(to, value | (bits & 0x80000000) >> 16);
  }
};

/// The elements of v as doubles, as many vectors of them as it takes.
VH_INLINE void to_double(const Lanes<float>::V& v, Lanes<double>::V (&wide)[2]) {
  wide[0] = __builtin_convertvector(__builtin_shufflevector(v, v, 0, 1, 2, 3, 4, 5, 6, 7), Lanes<double>::V);
  wide[1] = __builtin_convertvector(__builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15), Lanes<double>::V);
}

VH_INLINE void to_double(const Lanes<double>::V& v, Lanes<double>::V (&wide)[1]) {
  wide[0] = v;
}

VH_INLINE void from_double(const Lanes<double>::V (&wide)[2], Lanes<float>::V& v) {
  typedef float Half __attribute__((vector_size(32)));
  v = __builtin_shufflevector(__builtin_convertvector(wide[0], Half), __builtin_convertvector(wide[1], Half), 0, 1, 2,
                              3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
}

VH_INLINE void from_double(const Lanes<double>::V (&wide)[1], Lanes<double>::V& v) {
  v = wide[0];
}

VH_INLINE void widen_bytes(const uint8_t* from, Lanes<float>::V& v) {
  typedef uint8_t Bytes __attribute__((vector_size(16)));
  Bytes bytes;
  std::memcpy(&bytes, from, sizeof(bytes));
  v = __builtin_convertvector(bytes, Lanes<float>::V);
}

VH_INLINE void widen_bytes(const uint8_t* from, Lanes<double>::V& v) {
  typedef uint8_t Bytes __attribute__((vector_size(8)));
  Bytes bytes;
  std::memcpy(&bytes, from, sizeof(bytes));
  v = __builtin_convertvector(bytes, Lanes<double>::V);
}

/// The first `count` elements, fewer than there are; the others are 0.
template <class T>
VH_INLINE void load_part(const T* from, int64_t count, typename Lanes<T>::V& v) {
  alignas(64) T row[Lanes<T>::kWidth] = {};
  std::memcpy(static_cast<void*>(row), from, static_cast<size_t>(count) * sizeof(T));
  Lanes<T>::load(row, v);
}

template <class T>
VH_INLINE void store_part(T* to, int64_t count, const typename Lanes<T>::V& v) {
  alignas(64) T row[Lanes<T>::kWidth];
  Lanes<T>::store(row, v);
  std::memcpy(static_cast<void*>(to), row, static_cast<size_t>(count) * sizeof(T));
}

/// Loads and stores whole vectors.
struct Whole {
  template <class V>
  VH_INLINE void load_bytes(const uint8_t* from, V& v) const {
    widen_bytes(from, v);
  }
  template <class T>
  VH_INLINE void load(const T* from, typename Lanes<T>::V& v) const {
    Lanes<T>::load(from, v);
  }
  template <class T>
  VH_INLINE void store(T* to, const typename Lanes<T>::V& v) const {
    Lanes<T>::store(to, v);
  }
  template <class T>
  VH_INLINE void clear_others(typename Lanes<T>::V& /*v*/) const {}
};

/// The same for the end of a row.
struct Part {
  int64_t count;

  template <class V>
  VH_INLINE void load_bytes(const uint8_t* from, V& v) const {
    alignas(16) uint8_t row[sizeof(V) / sizeof(v[0])] = {};
    std::memcpy(row, from, static_cast<size_t>(count));
    widen_bytes(row, v);
  }
  template <class T>
  VH_INLINE void load(const T* from, typename Lanes<T>::V& v) const {
    load_part(from, count, v);
  }
  template <class T>
  VH_INLINE void store(T* to, const typename Lanes<T>::V& v) const {
    store_part(to, count, v);
  }
  /// Zeros where the row has no elements.
  template <class T>
  VH_INLINE void clear_others(typename Lanes<T>::V& v) const {
    for (int64_t lane = count; lane < Lanes<T>::kWidth; ++lane) {
      v[lane] = 0;
    }
  }
};

/// Calls `use(i, Whole or Part)` for the vectors of a row of n elements, i being the first element of each.
template <class T, class Use>
VH_INLINE void for_lanes(int64_t n, const Use& use) {
  int64_t i = 0;
  for (; i + Lanes<T>::kWidth <= n; i += Lanes<T>::kWidth) {
    use(i, Whole());
  }
  if (i < n) {
    use(i, Part{n - i});
  }
}

/// Writes what `value(i, Whole or Part, V&)` gives for the vectors of a row of n elements, two at a time where a type
/// has an instruction for that.
template <class T, class Value>
VH_INLINE void store_lanes(int64_t n, T* to, const Value& value) {
  using V = typename Lanes<T>::V;
  constexpr int64_t kWidth = Lanes<T>::kWidth;
  int64_t i = 0;
  if constexpr (requires(V v) { Lanes<T>::store_pair(to, v, v); }) {
    for (; i + 2 * kWidth <= n; i += 2 * kWidth) {
      V first, second;
      value(i, Whole(), first);
      value(i + kWidth, Whole(), second);
      Lanes<T>::store_pair(to + i, first, second);
    }
  }
  for (; i + kWidth <= n; i += kWidth) {
    V v;
    value(i, Whole(), v);
    Lanes<T>::store(to + i, v);
  }
  if (i < n) {
    V v;
    value(i, Part{n - i}, v);
    store_part(to + i, n - i, v);
  }
}

namespace detail {

// Leaves the sum of all elements in the first one.
template <size_t kHalf, class V, size_t... kLane>
VH_INLINE void add_halves(V& v, std::index_sequence<kLane...> lanes) {
  v += __builtin_shufflevector(v, v, ((kLane + kHalf) % sizeof...(kLane))...);
  if constexpr (kHalf > 1) {
    add_halves<kHalf / 2>(v, lanes);
  }
}

}  // namespace detail

/// The sum of the elements, halves first.
template <class T>
VH_INLINE typename Lanes<T>::Float sum_of(const typename Lanes<T>::V& lanes) {
  typename Lanes<T>::V v = lanes;
  detail::add_halves<Lanes<T>::kWidth / 2>(v, std::make_index_sequence<Lanes<T>::kWidth>());
  return v[0];
}

/// Adds up what `term(i, Whole or Part, V&)` gives for the vectors of a row of n elements: four sums at a time, so that
/// additions need not wait for each other.
template <class T, class Term>
VH_INLINE typename Lanes<T>::Float sum_lanes(int64_t n, const Term& term) {
  using V = typename Lanes<T>::V;
  constexpr int64_t kWidth = Lanes<T>::kWidth;
  constexpr int64_t kSums = 4;
  V sums[kSums] = {};
  int64_t i = 0;
  for (; i + kSums * kWidth <= n; i += kSums * kWidth) {
#pragma GCC unroll 4
    for (int64_t k = 0; k < kSums; ++k) {
      V v;
      term(i + k * kWidth, Whole(), v);
      sums[k] += v;
    }
  }
  for (; i + kWidth <= n; i += kWidth) {
    V v;
    term(i, Whole(), v);
    sums[0] += v;
  }
  if (i < n) {
    V v;
    term(i, Part{n - i}, v);
    sums[1] += v;
  }
  return sum_of<T>((sums[0] + sums[1]) + (sums[2] + sums[3]));
}

#if defined(__x86_64__)

struct UnitBFloat16 {
  uint16_t x;
};

// Assembler, because the loops are put together of lambdas that are of no instruction set of their own, and no
// intrinsic can be inlined into those.
template <>
struct Lanes<UnitBFloat16> : HalfLengthLanes {
  // One shuffle: each word to the upper half of an element, zeros beside it.
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

#if defined(__x86_64__)

// VH_BF16_INLINE: a piece of the functions that are VH_AVX512_BF16.
#define VH_BF16_INLINE VH_AVX512_BF16 inline __attribute__((always_inline))

/// Elements of the register of 16 fp32 numbers that starts `left` elements before the end.
VH_BF16_INLINE __mmask16 first_elements(int64_t left) {
  return static_cast<__mmask16>((uint32_t{1} << std::clamp<int64_t>(left, 0, 16)) - 1);
}

#endif

}  // namespace vit_hybrid::kernels
