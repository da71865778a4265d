// Counter-based random numbers. Compiled with -ffp-contract=off: the bits of a normal must not depend on the machine.
#include "src/base/random.h"

#include <algorithm>
#include <cmath>

#include "src/base/instruction_sets.h"

namespace vit_hybrid {

namespace {

template <size_t N>
double polynomial(const double (&coefficients)[N], double x) {
  double value = coefficients[N - 1];
  for (size_t k = N - 1; k-- > 0;) {
    value = value * x + coefficients[k];
  }
  return value;
}

// 1/(2k + 1); for |s| < 0.172 the first term left out is below 1e-20.
constexpr double kArtanhSeries[] = {1.0,      1.0 / 3,  1.0 / 5,  1.0 / 7,  1.0 / 9,  1.0 / 11, 1.0 / 13,
                                    1.0 / 15, 1.0 / 17, 1.0 / 19, 1.0 / 21, 1.0 / 23, 1.0 / 25};

// Natural logarithm of a positive normal number: x = m 2^e with m in [sqrt(1/2), sqrt(2)), log m = 2
// artanh((m-1)/(m+1)).
double portable_log(double x) {
  int exponent = 0;
  double mantissa = std::frexp(x, &exponent);  // exact
  if (mantissa < 0.70710678118654752440) {
    mantissa = mantissa * 2.0;
    exponent -= 1;
  }
  const double s = (mantissa - 1.0) / (mantissa + 1.0);
  const double s2 = s * s;
  const double sum = polynomial(kArtanhSeries, s2);
  return 2.0 * s * sum + exponent * 0.69314718055994530942;
}

// The coefficients of AS 241, table of PPND16.
constexpr double kCentralNumerator[] = {3.3871328727963666080e0,  1.3314166789178437745e+2, 1.9715909503065514427e+3,
                                        1.3731693765509461125e+4, 4.5921953931549871457e+4, 6.7265770927008700853e+4,
                                        3.3430575583588128105e+4, 2.5090809287301226727e+3};
constexpr double kCentralDenominator[] = {1.0,
                                          4.2313330701600911252e+1,
                                          6.8718700749205790830e+2,
                                          5.3941960214247511077e+3,
                                          2.1213794301586595867e+4,
                                          3.9307895800092710610e+4,
                                          2.8729085735721942674e+4,
                                          5.2264952788528545610e+3};
constexpr double kMiddleNumerator[] = {1.42343711074968357734e0,  4.63033784615654529590e0, 5.76949722146069140550e0,
                                       3.64784832476320460504e0,  1.27045825245236838258e0, 2.41780725177450611770e-1,
                                       2.27238449892691845833e-2, 7.74545014278341407640e-4};
constexpr double kMiddleDenominator[] = {1.0,
                                         2.05319162663775882187e0,
                                         1.67638483018380384940e0,
                                         6.89767334985100004550e-1,
                                         1.48103976427480074590e-1,
                                         1.51986665636164571966e-2,
                                         5.47593808499534494600e-4,
                                         1.05075007164441684324e-9};
constexpr double kTailNumerator[] = {6.65790464350110377720e0,  5.46378491116411436990e0,  1.78482653991729133580e0,
                                     2.96560571828504891230e-1, 2.65321895265761230930e-2, 1.24266094738807843860e-3,
                                     2.71155556874348757815e-5, 2.01033439929228813265e-7};
constexpr double kTailDenominator[] = {1.0,
                                       5.99832206555887937690e-1,
                                       1.36929880922735805310e-1,
                                       1.48753612908506148525e-2,
                                       7.86869131145613259100e-4,
                                       1.84631831751005468180e-5,
                                       1.42151175831644588870e-7,
                                       2.04426310338993978564e-15};

constexpr double kCentral = 0.425;

double central_quantile(double p) {
  const double q = p - 0.5;
  const double r = 0.180625 - q * q;
  return q * polynomial(kCentralNumerator, r) / polynomial(kCentralDenominator, r);
}

double tail_quantile(double p) {
  const double q = p - 0.5;
  double r = std::sqrt(-portable_log(q < 0.0 ? p : 1.0 - p));
  double value = 0.0;
  if (r <= 5.0) {
    r = r - 1.6;
    value = polynomial(kMiddleNumerator, r) / polynomial(kMiddleDenominator, r);
  } else {
    r = r - 5.0;
    value = polynomial(kTailNumerator, r) / polynomial(kTailDenominator, r);
  }
  return q < 0.0 ? -value : value;
}

// Uniform in (0, 1) from word `half` (0 or 1) of 64 bits of a block.
double to_uniform(const PhiloxBlock& words, size_t half) {
  const uint64_t word = (static_cast<uint64_t>(words[2 * half]) << 32) | words[2 * half + 1];
  return (static_cast<double>(word >> 12) + 0.5) * 0x1p-52;
}

constexpr size_t kBlocks = 64;  // made at once
using Words = std::array<uint32_t, 4 * kBlocks>;

// words[4 k ..] = the block of counter (first + k, j), for k below count.
VH_VERSIONS void fill_blocks(std::array<uint32_t, 2> key, uint64_t first, uint64_t j, size_t count, Words& words) {
#pragma omp simd
  for (size_t k = 0; k < count; ++k) {
    const uint64_t i = first + k;
    const PhiloxBlock block = philox4x32(key, {low_word(i), high_word(i), low_word(j), high_word(j)});
    words[4 * k] = block[0];
    words[4 * k + 1] = block[1];
    words[4 * k + 2] = block[2];
    words[4 * k + 3] = block[3];
  }
}

}  // namespace

RandomStream::RandomStream(uint64_t seed, Purpose purpose, uint64_t a, uint64_t b) {
  // Two keyed blocks fold (seed, purpose, a, b) into one 64-bit key.
  const PhiloxBlock first =
      philox4x32({low_word(seed), high_word(seed)}, {low_word(a), high_word(a), static_cast<uint32_t>(purpose), 0});
  const PhiloxBlock second = philox4x32({first[0], first[1]}, {low_word(b), high_word(b), first[2], first[3]});
  key_ = {second[0], second[1]};
}

PhiloxBlock RandomStream::block(uint64_t i, uint64_t j) const {
  return philox4x32(key_, {low_word(i), high_word(i), low_word(j), high_word(j)});
}

double RandomStream::uniform(uint64_t i, uint64_t j) const {
  return to_uniform(block(i / 2, j), i % 2);
}

double RandomStream::normal(uint64_t i, uint64_t j) const {
  return portable_normal_quantile(uniform(i, j));
}

void RandomStream::normals(uint64_t first, std::span<double> values) const {
  constexpr size_t kBatch = 256;
  std::array<double, kBatch> uniforms;
  std::array<uint32_t, kBatch> tails;
  for (size_t done = 0; done < values.size(); done += kBatch) {
    const size_t count = std::min(kBatch, values.size() - done);
    double* out = values.data() + done;
    fill_uniforms(first + done, {uniforms.data(), count});
    // All as if central, without a branch, so in vectors; the few of the tails again.
#pragma omp simd
    for (size_t k = 0; k < count; ++k) {
      out[k] = central_quantile(uniforms[k]);
    }
    size_t num_tails = 0;
    for (size_t k = 0; k < count; ++k) {
      tails[num_tails] = static_cast<uint32_t>(k);
      num_tails += std::fabs(uniforms[k] - 0.5) > kCentral ? 1 : 0;
    }
    for (size_t t = 0; t < num_tails; ++t) {
      out[tails[t]] = tail_quantile(uniforms[tails[t]]);
    }
  }
}

void RandomStream::fill_uniforms(uint64_t first, std::span<double> values) const {
  size_t k = 0;
  if (first % 2 == 1 && !values.empty()) {
    values[k++] = uniform(first);
  }
  for (; k + 1 < values.size(); k += 2) {
    const PhiloxBlock words = block((first + k) / 2);
    values[k] = to_uniform(words, 0);
    values[k + 1] = to_uniform(words, 1);
  }
  if (k < values.size()) {
    values[k] = uniform(first + k);
  }
}

uint64_t RandomStream::below(uint64_t n, uint64_t i, uint64_t j) const {
  const PhiloxBlock words = block(i / 2, j);
  const uint64_t word = (static_cast<uint64_t>(words[2 * (i % 2)]) << 32) | words[2 * (i % 2) + 1];
  __extension__ using Wide = unsigned __int128;
  return static_cast<uint64_t>((static_cast<Wide>(word) * n) >> 64);
}

double portable_normal_quantile(double p) {
  return std::fabs(p - 0.5) <= kCentral ? central_quantile(p) : tail_quantile(p);
}

uint64_t name_key(const char* name) {
  uint64_t hash = 0xcbf29ce484222325ULL;
  for (; *name != '\0'; ++name) {
    hash = (hash ^ static_cast<unsigned char>(*name)) * 0x100000001b3ULL;
  }
  return hash;
}

void RandomStream::fill_bits(uint64_t first, uint64_t j, std::span<uint32_t> values) const {
  Words words;
  size_t skipped = first % 4;  // draws of the first block that were not asked for
  uint64_t block = first / 4;
  for (size_t done = 0; done < values.size(); block += kBlocks, skipped = 0) {
    const size_t count = std::min(words.size() - skipped, values.size() - done);
    fill_blocks(key_, block, j, (skipped + count + 3) / 4, words);
    std::copy_n(words.data() + skipped, count, values.data() + done);
    done += count;
  }
}

}  // namespace vit_hybrid
