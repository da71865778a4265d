// Text from values: concatenation with all digits of a number, a number of decimals, and joined lists.
#pragma once

#include <charconv>
#include <cmath>
#include <concepts>
#include <sstream>
#include <string>
#include <string_view>

namespace vit_hybrid {

namespace detail {
// The sign of what is no number means nothing.
std::string number_text(std::floating_point auto value, auto... format) {
  char buffer[512];
  const auto end = std::to_chars(buffer, buffer + sizeof(buffer), value, format...).ptr;
  return std::isnan(value) ? "nan" : std::string(buffer, end);
}
}  // namespace detail

/// A floating-point number with the fewest digits that read back as the same number; "nan", "inf", "-inf".
inline std::string digits(std::floating_point auto value) {
  return detail::number_text(value);
}

/// A number with so many decimals, at most 100, rounded: "0.350"; "nan", "inf", "-inf".
inline std::string fixed_text(double value, int decimals) {
  return detail::number_text(value, std::chars_format::fixed, decimals);
}

namespace detail {
template <class T>
void append(std::ostringstream& out, const T& value) {
  if constexpr (std::floating_point<T>) {
    out << digits(value);
  } else if constexpr (std::same_as<T, bool>) {
    out << (value ? "true" : "false");
  } else {
    out << value;
  }
}
}  // namespace detail

/// The values one after the other as text.
template <class... Values>
std::string str(const Values&... values) {
  std::ostringstream out;
  (detail::append(out, values), ...);
  return out.str();
}

/// The elements of a range as text with `separator` between them.
template <class Range>
std::string join(const Range& range, std::string_view separator = ", ") {
  std::ostringstream out;
  bool first = true;
  for (const auto& element : range) {
    if (!first) {
      out << separator;
    }
    first = false;
    detail::append(out, element);
  }
  return out.str();
}

}  // namespace vit_hybrid
