// Reduction in rank order: blocks that stay in the first-level cache, loops that vectorize.
#include "parallel/comm/rank_order.h"

#include <c10/util/Half.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "src/base/error.h"

namespace vit_hybrid::comm {

namespace {

constexpr int64_t kBlock = 1024;

struct Sum {
  template <class T>
  static T apply(T a, T b) {
    if constexpr (std::is_integral_v<T>) {
      using Unsigned = std::make_unsigned_t<T>;  // wraps instead of being undefined
      return static_cast<T>(static_cast<Unsigned>(a) + static_cast<Unsigned>(b));
    } else {
      return a + b;
    }
  }
};
// A NaN wins: comparisons with it are false, and b != b finds it on the right.
struct Max {
  template <class T>
  static T apply(T a, T b) {
    return (a < b || b != b) ? b : a;
  }
};
struct Min {
  template <class T>
  static T apply(T a, T b) {
    return (b < a || b != b) ? b : a;
  }
};

// How a type is stored, and in which type it is added up.
template <class T>
struct Plain {
  using Stored = T;
  using Value = T;
  static Value load(Stored x) { return x; }
  static Stored store(Value x) { return x; }
};

// c10::BFloat16's conversion without its branch, so that loops over it vectorize.
struct BFloat16Bits {
  using Stored = uint16_t;
  using Value = float;
  static Value load(Stored x) { return std::bit_cast<float>(static_cast<uint32_t>(x) << 16); }
  static Stored store(Value x) {
    const auto bits = std::bit_cast<uint32_t>(x);
    const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    return static_cast<uint16_t>((bits & 0x7fffffffu) > 0x7f800000u ? 0x7fc0u : rounded);
  }
};

struct HalfBits {
  using Stored = uint16_t;
  using Value = float;
  static Value load(Stored x) { return c10::detail::fp16_ieee_to_fp32_value(x); }
  static Stored store(Value x) { return c10::detail::fp16_ieee_from_fp32_value(x); }
};

template <class Format, class Op>
void reduce_block(const std::vector<const void*>& sources, void* result, int64_t begin, int64_t count) {
  using Stored = typename Format::Stored;
  typename Format::Value sums[kBlock];
  const Stored* const first = static_cast<const Stored*>(sources[0]) + begin;
#pragma omp simd
  for (int64_t i = 0; i < count; ++i)
    sums[i] = Format::load(first[i]);
  for (size_t s = 1; s < sources.size(); ++s) {
    const Stored* const source = static_cast<const Stored*>(sources[s]) + begin;
#pragma omp simd
    for (int64_t i = 0; i < count; ++i)
      sums[i] = Op::apply(sums[i], Format::load(source[i]));
  }
  Stored* const out = static_cast<Stored*>(result) + begin;
#pragma omp simd
  for (int64_t i = 0; i < count; ++i)
    out[i] = Format::store(sums[i]);
}

template <class Format, class Op>
void reduce(const std::vector<const void*>& sources, void* result, int64_t count) {
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    reduce_block<Format, Op>(sources, result, begin, std::min(kBlock, count - begin));
  }
}

template <class Format>
void reduce(ReduceOp op, const std::vector<const void*>& sources, void* result, int64_t count) {
  switch (op) {
    case ReduceOp::kSum:
      return reduce<Format, Sum>(sources, result, count);
    case ReduceOp::kMax:
      return reduce<Format, Max>(sources, result, count);
    case ReduceOp::kMin:
      return reduce<Format, Min>(sources, result, count);
  }
}

}  // namespace

void reduce_in_rank_order(c10::ScalarType type, ReduceOp op, const std::vector<const void*>& sources, void* result,
                          int64_t count) {
  switch (type) {
    case c10::ScalarType::Double:
      return reduce<Plain<double>>(op, sources, result, count);
    case c10::ScalarType::Float:
      return reduce<Plain<float>>(op, sources, result, count);
    case c10::ScalarType::Half:
      return reduce<HalfBits>(op, sources, result, count);
    case c10::ScalarType::BFloat16:
      return reduce<BFloat16Bits>(op, sources, result, count);
    case c10::ScalarType::Long:
      return reduce<Plain<int64_t>>(op, sources, result, count);
    case c10::ScalarType::Int:
      return reduce<Plain<int32_t>>(op, sources, result, count);
    case c10::ScalarType::Byte:
    case c10::ScalarType::Bool:
      return reduce<Plain<uint8_t>>(op, sources, result, count);
    default:
      VH_ASSERT(false, "a type that the checks let through has no reduction");
  }
}

}  // namespace vit_hybrid::comm
