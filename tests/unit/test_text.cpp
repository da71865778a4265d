// Text: all digits of a number, and joined values.
#include <doctest/doctest.h>

#include <cstdlib>
#include <limits>
#include <string>
#include <vector>

#include "src/base/text.h"

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

TEST_CASE("text: values one after the other") {
  CHECK(str() == "");
  CHECK(str("tp ", 3, " of ", 0.25, ", ", true, ' ', std::string("x")) == "tp 3 of 0.25, true x");
}

TEST_CASE("text: joined ranges") {
  CHECK(join(std::vector<int>{}) == "");
  CHECK(join(std::vector<int>{1}) == "1");
  CHECK(join(std::vector<int>{1, 2, 4}) == "1, 2, 4");
  CHECK(join(std::vector<std::string>{"a", "b"}, " x ") == "a x b");
  CHECK(join(std::vector<double>{0.5, 0.1}) == "0.5, 0.1");
}
