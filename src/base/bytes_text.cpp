// bytes_text(): the unit and the digits.
#include "src/base/bytes_text.h"

#include <array>

#include "src/base/text.h"

namespace vit_hybrid {

std::string bytes_text(int64_t bytes) {
  constexpr std::array kUnits = {"bytes", "KiB", "MiB", "GiB", "TiB"};
  auto value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 1024.0 && unit + 1 < kUnits.size()) {
    value /= 1024.0;
    ++unit;
  }
  const int decimals = unit == 0 || value >= 100.0 ? 0 : value >= 10.0 ? 1 : 2;
  return str(fixed_text(value, decimals), " ", kUnits[unit]);
}

}  // namespace vit_hybrid
