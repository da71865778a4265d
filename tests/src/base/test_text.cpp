// Text: all digits of a number, and joined values.
#include <doctest/doctest.h>

#include <cstdio>
#include <cstdlib>
#include <limits>
#include <string>
#include <vector>

#include "src/base/text.h"

using vit_hybrid::bytes_text;
using vit_hybrid::digits;
using vit_hybrid::join;
using vit_hybrid::str;

TEST_CASE("text: a number is written with the fewest digits that give it back") {
  CHECK(digits(0.1) == "0.1");
  CHECK(digits(1.0) == "1");
  CHECK(digits(0.1f) == "0.1");
  CHECK(digits(-2.5e-9) == "-2.5e-09");
  for (const double value : {1.0 / 3.0, 2.0 / 3.0 * 1e300, 5e-324, std::numeric_limits<double>::max(), 0.1 + 0.2}) {
    CHECK(std::strtod(digits(value).c_str(), nullptr) == value);
  }
  for (const float value : {1.0f / 3.0f, 1e-45f, std::numeric_limits<float>::max()}) {
    CHECK(std::strtof(digits(value).c_str(), nullptr) == value);
  }
}

TEST_CASE("text: a number with some decimals is rounded, to even where it lies between two") {
  using vit_hybrid::fixed_text;
  CHECK(fixed_text(0.35, 3) == "0.350");
  CHECK(fixed_text(-1.0 / 3.0, 6) == "-0.333333");
  CHECK(fixed_text(0.125, 2) == "0.12");
  CHECK(fixed_text(99.5, 0) == "100");
  for (const double value : {1e300, 123456789.987654321, 5e-324, -0.0, std::numeric_limits<double>::max()}) {
    char expected[512];
    std::snprintf(expected, sizeof(expected), "%.7f", value);
    CHECK(fixed_text(value, 7) == expected);
  }
}

TEST_CASE("text: what is no number has no sign") {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double infinity = std::numeric_limits<double>::infinity();
  for (const double value : {nan, -nan, infinity - infinity}) {
    CHECK(digits(value) == "nan");
    CHECK(digits(static_cast<float>(value)) == "nan");
    CHECK(vit_hybrid::fixed_text(value, 6) == "nan");
    CHECK(str("loss ", value) == "loss nan");
    CHECK(join(std::vector<double>{value, 1.5}) == "nan, 1.5");
  }
  CHECK(digits(-infinity) == "-inf");
  CHECK(vit_hybrid::fixed_text(-infinity, 2) == "-inf");
  CHECK(vit_hybrid::fixed_text(infinity, 2) == "inf");
}

TEST_CASE("text: values one after the other") {
  CHECK(str() == "");
  CHECK(str("tp ", 3, " of ", 0.25, ", ", true, ' ', std::string("x")) == "tp 3 of 0.25, true x");
}

TEST_CASE("text: bytes in the unit that suits, with three digits") {
  CHECK(bytes_text(1000) == "1000 bytes");
  CHECK(bytes_text(1536) == "1.50 KiB");
  CHECK(bytes_text(614466355) == "586 MiB");
  CHECK(bytes_text(int64_t{24} << 30) == "24.0 GiB");
}

TEST_CASE("text: joined ranges") {
  CHECK(join(std::vector<int>{}) == "");
  CHECK(join(std::vector<int>{1}) == "1");
  CHECK(join(std::vector<int>{1, 2, 4}) == "1, 2, 4");
  CHECK(join(std::vector<std::string>{"a", "b"}, " x ") == "a x b");
  CHECK(join(std::vector<double>{0.5, 0.1}) == "0.5, 0.1");
}

TEST_CASE("text: numbers for people have few digits, and none that say nothing") {
  using vit_hybrid::number_text;
  CHECK(number_text(0.00048296291314453416) == "0.00048296");
  CHECK(number_text(1.0 / 3.0, 6) == "0.333333");
  CHECK(number_text(0.5) == "0.5");
  CHECK(number_text(65536.0) == "65536");
  CHECK(number_text(123456.789) == "1.2346e+05");
  CHECK(number_text(0.0) == "0");
  CHECK(number_text(-std::numeric_limits<double>::quiet_NaN()) == "nan");
  CHECK(number_text(std::numeric_limits<double>::infinity()) == "inf");
}

TEST_CASE("text: durations in the unit that suits") {
  using vit_hybrid::duration_text;
  using vit_hybrid::rough_duration_text;
  CHECK(duration_text(15.873) == "15.87 s");
  CHECK(duration_text(600.0) == "10.0 min");
  CHECK(rough_duration_text(42.6) == "43 s");
  CHECK(rough_duration_text(119.0) == "119 s");
  CHECK(rough_duration_text(720.0) == "12 min");
  CHECK(rough_duration_text(3.0 * 3600.0) == "3.0 h");
  CHECK(rough_duration_text(2.5 * 86400.0) == "2.5 days");
}

TEST_CASE("text: many parts are counted by their sizes") {
  using vit_hybrid::parts_text;
  CHECK(parts_text({3, 3, 2}) == "3 + 3 + 2");
  CHECK(parts_text(std::vector<int64_t>(8, 1)) == "1 + 1 + 1 + 1 + 1 + 1 + 1 + 1");
  CHECK(parts_text(std::vector<int64_t>(48, 1)) == "48 x 1");
  std::vector<int64_t> parts;
  for (int i = 0; i < 24; ++i) {
    parts.insert(parts.end(), {1, 2});
  }
  CHECK(parts_text(parts) == "24 x 2 + 24 x 1");
}
