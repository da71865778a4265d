// Text from values: all digits of a number, quantities for people, joined lists, and the nearest of several words.
#pragma once

#include <charconv>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

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

/// "1 rank", "2 ranks".
std::string counted(size_t count, const std::string& noun);

/// What the system says of an error number (errno).
std::string reason(int error);

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

/// "1.50 GiB": three digits in the unit that suits.
std::string bytes_text(int64_t bytes);

/// "0.35", "1.2e-05": at most `digits` significant digits, without trailing zeros;
/// "nan", "inf", "-inf".
std::string number_text(double value, int digits = 5);

/// "15.87 s", "2.6 min", "3.1 h", "2.4 days".
std::string duration_text(double seconds);

/// The same for a time that is only guessed: "43 s", "12 min", "3.1 h", "2.4 days".
std::string rough_duration_text(double seconds);

/// The parts of a whole, as "3 + 3 + 2"; of more than eight how often each size is there: "24 x 2 + 24 x 1".
std::string parts_text(const std::vector<int64_t>& parts);

/// The word of `words` that is meant by `word`: one that begins with it, else the one that takes fewest insertions,
/// deletions and replacements of a character; empty where there are no words.
std::string nearest_word(const std::string& word, const std::vector<std::string>& words);

/// That word, where it begins with `word` or differs in a third of the longer one's characters at most; else empty.
std::string similar_word(const std::string& word, const std::vector<std::string>& words);

}  // namespace vit_hybrid
