// Philox against its published vectors, and streams, uniforms and normals against independent references.
#include <doctest/doctest.h>

#include <cmath>
#include <set>
#include <vector>

#include "src/base/random.h"

using namespace vit_hybrid;

TEST_CASE("random: Philox4x32-10 gives the known answers of Random123") {
  CHECK(philox4x32({0, 0}, {0, 0, 0, 0}) == PhiloxBlock{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  constexpr uint32_t kOnes = 0xffffffff;
  CHECK(philox4x32({kOnes, kOnes}, {kOnes, kOnes, kOnes, kOnes}) ==
        PhiloxBlock{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  CHECK(philox4x32({0xa4093822, 0x299f31d0}, {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}) ==
        PhiloxBlock{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST_CASE("random: a stream gives what a second implementation (Python integers) gives") {
  const RandomStream stream(1234567890123, Purpose::kTest, 42, 7);
  CHECK(stream.block(0) == PhiloxBlock{0x33992a01, 0x7fb2e5c2, 0x1138249e, 0x725b683e});
  CHECK(stream.bits(2) == 0x1138249e);
  CHECK(stream.uniform(0) == 0x1.9cc9500bfd974p-3);
  CHECK(stream.uniform(3) == 0x1.b277e986afd78p-4);
  CHECK(stream.uniform(1'000'000'000'001, 3) == 0x1.f67db9465347bp-1);
  // CPython's statistics.NormalDist().inv_cdf of the uniforms.
  CHECK(stream.normal(0) == doctest::Approx(-0x1.ac1242421e2c8p-1).epsilon(1e-15));
  CHECK(stream.normal(1) == doctest::Approx(-0x1.7f1a026c209b0p+0).epsilon(1e-15));
  CHECK(stream.normal(2) == doctest::Approx(0x1.bccb4e8b14295p-1).epsilon(1e-15));
  CHECK(stream.normal(3) == doctest::Approx(-0x1.3f68f05773834p+0).epsilon(1e-15));
}

TEST_CASE("random: the normal quantile inverts the distribution function") {
  // Of p = erfc(-x / sqrt 2) / 2, a relative error e in x changes p by about x^2 e relatively: 1 + x^2 rounding errors.
  for (double p = 1e-300; p < 1.0; p = p < 1e-3 ? p * 7.3 : p + 1.7e-3) {
    const double x = portable_normal_quantile(p);
    CAPTURE(p);
    CHECK(std::fabs(0.5 * std::erfc(-x / std::sqrt(2.0)) - p) <= 4e-15 * (1.0 + x * x) * p);
  }
  CHECK(portable_normal_quantile(0.5) == 0.0);
  CHECK(portable_normal_quantile(0.975) == doctest::Approx(1.9599639845400545).epsilon(1e-15));
}

TEST_CASE("random: a batch of normals has the bits of the single ones") {
  const RandomStream stream(21, Purpose::kTest);
  for (const uint64_t first : {0, 1, 1001}) {
    for (const size_t count : {0, 1, 2, 255, 256, 257, 2000}) {
      std::vector<double> values(count);
      stream.normals(first, values);
      for (size_t i = 0; i < count; ++i) {
        REQUIRE(values[i] == stream.normal(first + i));
      }
    }
  }
}

TEST_CASE("random: a batch of bits has the single ones") {
  const RandomStream stream(5, Purpose::kTest, 3);
  for (const uint64_t first : {uint64_t{0}, uint64_t{3}, uint64_t{254}, (uint64_t{1} << 34) - 6}) {
    for (const size_t count : {0, 1, 3, 4, 253, 256, 257, 1000}) {
      std::vector<uint32_t> values(count + 1, 77);
      stream.fill_bits(first, 9, {values.data(), count});
      for (size_t i = 0; i < count; ++i) {
        REQUIRE(values[i] == stream.bits(first + i, 9));
      }
      REQUIRE(values[count] == 77);
    }
  }
}

TEST_CASE("random: streams of another seed, purpose or key are others") {
  std::set<uint32_t> first_draws;
  for (const uint64_t seed : {1, 2}) {
    for (const Purpose purpose : {Purpose::kInitialWeights, Purpose::kDropout, Purpose::kTest}) {
      for (const uint64_t a : {uint64_t{0}, uint64_t{1}, uint64_t{1} << 40}) {
        for (const uint64_t b : {uint64_t{0}, uint64_t{1}, uint64_t{1} << 40}) {
          first_draws.insert(RandomStream(seed, purpose, a, b).bits(0));
        }
      }
    }
  }
  CHECK(first_draws.size() == 2 * 3 * 3 * 3);
}

TEST_CASE("random: uniforms and bounded integers have their moments") {
  const RandomStream stream(3, Purpose::kTest);
  constexpr int kDraws = 100'000;
  constexpr int kSides = 6;
  double sum = 0;
  double sum_of_squares = 0;
  std::vector<double> counts(kSides, 0.0);
  for (int i = 0; i < kDraws; ++i) {
    const double u = stream.uniform(static_cast<uint64_t>(i));
    REQUIRE(u > 0.0);
    REQUIRE(u < 1.0);
    sum += u;
    sum_of_squares += u * u;
    counts.at(stream.below(kSides, static_cast<uint64_t>(i), 1)) += 1;
  }
  // Five standard deviations of the means.
  CHECK(std::fabs(sum / kDraws - 0.5) < 5 * std::sqrt(1.0 / 12 / kDraws));
  CHECK(std::fabs(sum_of_squares / kDraws - 1.0 / 3) < 5 * std::sqrt(4.0 / 45 / kDraws));
  for (const double count : counts) {
    CHECK(std::fabs(count / kDraws - 1.0 / kSides) < 5 * std::sqrt(5.0 / 36 / kDraws));
  }
}

TEST_CASE("random: name_key is 64-bit FNV-1a") {
  CHECK(name_key("") == 0xcbf29ce484222325ULL);
  CHECK(name_key("a") == 0xaf63dc4c8601ec8cULL);
  CHECK(name_key("foobar") == 0x85944171f73967e8ULL);
}
