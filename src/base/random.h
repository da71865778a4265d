// Random numbers as functions of a key and a counter (Philox), and what the draws of a micro-batch are keyed by.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "src/base/philox.h"

namespace vit_hybrid {

enum class Mode { kTraining, kEvaluation };

/// Of one micro-batch: draws are functions of these, never of the rank.
struct SampleContext {
  uint64_t seed = 0;
  int64_t step = 0;
  std::vector<int64_t> samples;  ///< global numbers of the micro-batch's samples (epoch position independent keys)
  Mode mode = Mode::kEvaluation;

  bool training() const { return mode == Mode::kTraining; }
};

/// What a stream of numbers is for; streams of different purposes are independent.
enum class Purpose : uint32_t {
  kInitialWeights = 1,
  kDropout = 2,
  kAttentionDropout = 3,
  kDropPath = 4,
  kSampleOrder = 5,
  kAugmentation = 6,
  kSyntheticData = 7,
  kTest = 8,
  kMixup = 9,
};

/// One stream of draws, keyed by (seed, purpose, a, b); draw i does not depend on the others. Cheap to make and copy.
class RandomStream {
 public:
  /// `a` and `b` say which stream of this purpose: e.g. (step, layer), (epoch, 0), (hash of a parameter's name, 0).
  RandomStream(uint64_t seed, Purpose purpose, uint64_t a = 0, uint64_t b = 0);

  /// The key of philox4x32() behind the stream, for kernels that draw on their own; see block().
  const std::array<uint32_t, 2>& key() const { return key_; }
  /// 4 x 32 uniform bits; block i holds the draws 4 i .. 4 i + 3 of bits().
  PhiloxBlock block(uint64_t i, uint64_t j = 0) const;
  /// 32 uniform bits, draw `i`; `j` is a second index where one is not enough (e.g. sample and element).
  uint32_t bits(uint64_t i, uint64_t j = 0) const { return block(i / 4, j)[i % 4]; }
  /// values[k] = bits(first + k, j), many times as fast.
  void fill_bits(uint64_t first, uint64_t j, std::span<uint32_t> values) const;
  /// Uniform in (0, 1), 53 bits, never 0 or 1.
  double uniform(uint64_t i, uint64_t j = 0) const;
  /// Standard normal by the inverse of the distribution function (portable_normal_quantile), the same on every machine.
  double normal(uint64_t i, uint64_t j = 0) const;
  /// values[k] = normal(first + k), the same bits in a fraction of the time.
  void normals(uint64_t first, std::span<double> values) const;
  /// Uniform integer in [0, n), n >= 1, without bias that matters (64-bit multiply-shift).
  uint64_t below(uint64_t n, uint64_t i, uint64_t j = 0) const;

 private:
  void fill_uniforms(uint64_t first, std::span<double> values) const;

  std::array<uint32_t, 2> key_;
};

/// Quantile of the standard normal, p in (0, 1): M. J. Wichura, Algorithm AS 241 (PPND16), Appl. Statist. 37 (1988),
/// from + - x / and square root only and without contraction, so that the bits are the same on every machine.
double portable_normal_quantile(double p);

/// 64-bit FNV-1a hash of a name, to key a stream by it.
uint64_t name_key(const char* name);

}  // namespace vit_hybrid
