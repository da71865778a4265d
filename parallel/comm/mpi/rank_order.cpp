// Reduction in rank order: chunks that stay in the first-level cache, loops that vectorize; and the tree over blocks.
#include "parallel/comm/mpi/rank_order.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstring>
#include <memory>
#include <numeric>

#include "src/base/error.h"
#include "src/base/partition.h"
#include "src/base/text.h"

namespace vit_hybrid::comm {

namespace {

constexpr int64_t kChunk = 1024;

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
    return (a < b || b != b) ? b : a;  // NOLINT(misc-redundant-expression)
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

// a < b ? if_less : if_not, for a and b below 2^31; arithmetic, because a branch keeps a loop from being vectorized.
inline uint32_t select_less(uint32_t a, uint32_t b, uint32_t if_less, uint32_t if_not) {
  const auto mask = static_cast<uint32_t>(static_cast<int32_t>(a - b) >> 31);
  return if_not ^ ((if_less ^ if_not) & mask);
}

// c10::BFloat16's conversion without its branch, so that loops over it vectorize.
struct BFloat16Bits {
  using Stored = uint16_t;
  using Value = float;
  static Value load(Stored x) { return std::bit_cast<float>(static_cast<uint32_t>(x) << 16); }
  static Stored store(Value x) {
    const auto bits = std::bit_cast<uint32_t>(x);
    const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    return static_cast<uint16_t>(select_less(0x7f800000u, bits & 0x7fffffffu, 0x7fc0u, rounded));
  }
};

// The same for IEEE half precision (round to nearest even): c10::Half's conversions do not vectorize.
struct HalfBits {
  using Stored = uint16_t;
  using Value = float;

  static Value load(Stored x) {
    const uint32_t sign = (x & 0x8000u) << 16;
    const uint32_t magnitude = (x & 0x7fffu) << 13;
    // 2^112 moves the exponent's bias from 15 to 127, also for subnormal numbers.
    const auto scaled = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) * 0x1p112f);
    const uint32_t special = select_less(magnitude, 0x0f800000u, 0u, 0x7f800000u);  // infinity and NaN
    return std::bit_cast<float>(sign | scaled | special);
  }

  static Stored store(Value x) {
    const auto bits = std::bit_cast<uint32_t>(x);
    const uint32_t sign = (bits >> 16) & 0x8000u;
    const uint32_t magnitude = bits & 0x7fffffffu;
    const uint32_t normal = (magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
    // Adding 0.5 shifts a subnormal result to the low bits, and rounds it.
    const uint32_t subnormal = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3f000000u;
    const uint32_t special = select_less(0x7f800000u, magnitude, 0x7e00u, 0x7c00u);
    const uint32_t finite = select_less(magnitude, 0x38800000u, subnormal, normal);
    return static_cast<Stored>(sign | select_less(magnitude, 0x47800000u, finite, special));
  }
};

template <class Format, class Op>
void reduce_chunk(const std::vector<const void*>& sources, void* result, int64_t begin, int64_t count) {
  using Stored = typename Format::Stored;
  const auto source = [&](size_t s) { return static_cast<const Stored*>(sources[s]) + begin; };
  Stored* const out = static_cast<Stored*>(result) + begin;
  if (sources.size() == 2) {
    const Stored* const a = source(0);
    const Stored* const b = source(1);
#pragma omp simd
    for (int64_t i = 0; i < count; ++i)
      out[i] = Format::store(Op::apply(Format::load(a[i]), Format::load(b[i])));
    return;
  }
  typename Format::Value sums[kChunk];
  const Stored* const first = source(0);
#pragma omp simd
  for (int64_t i = 0; i < count; ++i)
    sums[i] = Format::load(first[i]);
  for (size_t s = 1; s < sources.size(); ++s) {
    const Stored* const next = source(s);
#pragma omp simd
    for (int64_t i = 0; i < count; ++i)
      sums[i] = Op::apply(sums[i], Format::load(next[i]));
  }
#pragma omp simd
  for (int64_t i = 0; i < count; ++i)
    out[i] = Format::store(sums[i]);
}

template <class Format, class Op>
void reduce_all(const std::vector<const void*>& sources, void* result, int64_t count) {
  for (int64_t begin = 0; begin < count; begin += kChunk) {
    reduce_chunk<Format, Op>(sources, result, begin, std::min(kChunk, count - begin));
  }
}

#if defined(__x86_64__) && defined(__GNUC__)
// The same code, compiled for a wider instruction set. Sums and comparisons only: the bits are the same.
template <class Format, class Op>
__attribute__((target("avx2"), flatten)) void reduce_all_avx2(const std::vector<const void*>& sources, void* result,
                                                              int64_t count) {
  reduce_all<Format, Op>(sources, result, count);
}

template <class Format, class Op>
void reduce(const std::vector<const void*>& sources, void* result, int64_t count) {
  static const bool has_avx2 = __builtin_cpu_supports("avx2") != 0;
  has_avx2 ? reduce_all_avx2<Format, Op>(sources, result, count) : reduce_all<Format, Op>(sources, result, count);
}
#else
template <class Format, class Op>
void reduce(const std::vector<const void*>& sources, void* result, int64_t count) {
  reduce_all<Format, Op>(sources, result, count);
}
#endif

template <class Format>
void reduce(ReduceOp op, const std::vector<const void*>& sources, void* result, int64_t count) {
  op == ReduceOp::kSum ? reduce<Format, Sum>(sources, result, count) : reduce<Format, Max>(sources, result, count);
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

namespace {

// Elements of which the tree makes all sums before it goes on: they stay in the second-level cache.
constexpr int64_t kTreeChunk = 4 * kChunk;

class BlockTree {
 public:
  BlockTree(c10::ScalarType type, ReduceOp op, const SumBlocks& blocks) : type_(type), op_(op), first_source_{0} {
    for (const int size : blocks)
      first_source_.push_back(first_source_.back() + static_cast<size_t>(size));
  }

  // `result` is the last thing that is written: it may be one of the sources.
  void reduce(const std::vector<const void*>& sources, void* result, int64_t count) {
    const void* const value = value_of({0, static_cast<int64_t>(first_source_.size()) - 1}, sources, 0, count);
    std::memcpy(result, value, static_cast<size_t>(count) * c10::elementSize(type_));
  }

 private:
  using Scratch = std::array<std::byte, kTreeChunk * sizeof(double)>;

  // Where the value of these blocks is: in a source, or in the scratch memory of that depth of the tree.
  const void* value_of(Range blocks, const std::vector<const void*>& sources, size_t depth, int64_t count) {
    std::vector<const void*> terms;
    if (blocks.size() == 1) {
      const auto first = static_cast<size_t>(blocks.begin);
      terms.assign(sources.begin() + static_cast<std::ptrdiff_t>(first_source_[first]),
                   sources.begin() + static_cast<std::ptrdiff_t>(first_source_[first + 1]));
      if (terms.size() == 1) return terms[0];
    } else {
      const Partition halves(blocks.size(), 2);
      for (const int64_t half : {0, 1}) {
        const Range part = halves.part(half);
        // The value of the first half stays in this depth's memory while the second one is made.
        terms.push_back(value_of({blocks.begin + part.begin, blocks.begin + part.end}, sources,
                                 depth + static_cast<size_t>(half), count));
      }
    }
    if (scratch_.size() <= depth) scratch_.resize(depth + 1);
    if (scratch_[depth] == nullptr) scratch_[depth] = std::make_unique<Scratch>();
    reduce_in_rank_order(type_, op_, terms, scratch_[depth]->data(), count);
    return scratch_[depth]->data();
  }

  c10::ScalarType type_;
  ReduceOp op_;
  std::vector<size_t> first_source_;  // of each block, and the number of sources
  std::vector<std::unique_ptr<Scratch>> scratch_;
};

}  // namespace

void reduce_in_blocks(c10::ScalarType type, ReduceOp op, const std::vector<const void*>& sources,
                      const SumBlocks& blocks, void* result, int64_t count) {
  VH_ASSERT(static_cast<size_t>(std::accumulate(blocks.begin(), blocks.end(), 0)) == sources.size(),
            str("blocks of a sum for ", sources.size(), " ranks"));
  if (blocks.size() == 1) {
    reduce_in_rank_order(type, op, sources, result, count);
    return;
  }
  BlockTree tree(type, op, blocks);
  const auto element_bytes = static_cast<int64_t>(c10::elementSize(type));
  std::vector<const void*> chunk(sources.size());
  for (int64_t begin = 0; begin < count; begin += kTreeChunk) {
    std::transform(sources.begin(), sources.end(), chunk.begin(),
                   [&](const void* source) { return static_cast<const char*>(source) + begin * element_bytes; });
    tree.reduce(chunk, static_cast<char*>(result) + begin * element_bytes, std::min(kTreeChunk, count - begin));
  }
}

}  // namespace vit_hybrid::comm
