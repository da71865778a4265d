// Round numbers: the smallest step that gives few enough of them.
#include "data/picture/ticks.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "src/base/error.h"
#include "src/base/text.h"

namespace vit_hybrid::data {

namespace {

// Ends are reached in spite of rounding.
constexpr double kSlack = 1e-9;

double first_index(double low, double step) {
  return std::ceil(low / step - kSlack);
}

int count(double low, double high, double step) {
  return static_cast<int>(std::floor(high / step + kSlack) - first_index(low, step)) + 1;
}

double step_of(double low, double high, int most) {
  const double power = std::pow(10.0, std::floor(std::log10((high - low) / most)));
  for (const double factor : {1.0, 2.0, 5.0, 10.0, 20.0}) {
    if (count(low, high, factor * power) <= most) {
      return factor * power;
    }
  }
  return 50.0 * power;
}

std::string formatted(const char* format, int digits, double value) {
  char buffer[64];
  std::snprintf(buffer, sizeof(buffer), format, digits, value);
  return buffer;
}

// Plain decimals, unless the numbers are so small or large that zeros would fill them.
std::string label(double value, double step, double largest) {
  if (value == 0.0) {
    return "0";
  }
  const int decimals = std::max(0, static_cast<int>(std::ceil(-std::log10(step) - kSlack)));
  if (largest < 1e6 && decimals <= 4) {
    return formatted("%.*f", decimals, value);
  }
  const double digits = std::floor(std::log10(std::abs(value)) + kSlack) - std::floor(std::log10(step) + kSlack);
  return formatted("%.*e", std::max(0, static_cast<int>(digits)), value);
}

}  // namespace

std::vector<Tick> ticks(double low, double high, int most) {
  VH_ASSERT(std::isfinite(low) && std::isfinite(high) && low < high && most >= 2, str(low, " to ", high));
  const double step = step_of(low, high, most);
  std::vector<Tick> out;
  for (int i = 0; i < count(low, high, step); ++i) {
    const double value = (first_index(low, step) + i) * step;
    out.push_back({value, label(value, step, std::max(std::abs(low), std::abs(high)))});
  }
  return out;
}

std::string short_number(double value) {
  const double size = std::abs(value);
  if (size != 0.0 && (size < 1e-3 || size >= 1e6)) {
    return formatted("%.*e", 2, value);
  }
  const int digits_before = size < 1.0 ? 1 : static_cast<int>(std::log10(size)) + 1;
  return formatted("%.*f", std::max(0, 3 - digits_before), value);
}

}  // namespace vit_hybrid::data
