// Units, digits, sizes that are counted, and the edit distance between words.
#include "src/base/text.h"

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <numeric>
#include <system_error>
#include <utility>

namespace vit_hybrid {

namespace {

constexpr double kMinute = 60.0, kHour = 3600.0, kDay = 86400.0;
constexpr size_t kMostListed = 8;

std::string in_units(double seconds, int decimals_of_seconds, int decimals_of_minutes) {
  if (seconds < 2.0 * kMinute) return fixed_text(seconds, decimals_of_seconds) + " s";
  if (seconds < 2.0 * kHour) return fixed_text(seconds / kMinute, decimals_of_minutes) + " min";
  if (seconds < 2.0 * kDay) return fixed_text(seconds / kHour, 1) + " h";
  return fixed_text(seconds / kDay, 1) + " days";
}

constexpr size_t kLongestCompared = 64;  // the time goes with the length

// Fewest insertions, deletions and replacements of a character that turn `a` into `b`.
size_t edit_distance(const std::string& a, const std::string& b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replacement = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({replacement, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row[b.size()];
}

}  // namespace

std::string counted(size_t count, const std::string& noun) {
  return str(count, " ", noun, count == 1 ? "" : "s");
}

std::string reason(int error) {
  return std::generic_category().message(error);
}

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

std::string number_text(double value, int digits) {
  return detail::number_text(value, std::chars_format::general, digits);
}

std::string duration_text(double seconds) {
  return in_units(seconds, 2, 1);
}

std::string rough_duration_text(double seconds) {
  return in_units(seconds, 0, 0);
}

std::string parts_text(const std::vector<int64_t>& parts) {
  if (parts.size() <= kMostListed) {
    return join(parts, " + ");
  }
  std::map<int64_t, int64_t, std::greater<>> counts;
  for (const int64_t part : parts) {
    ++counts[part];
  }
  std::vector<std::string> terms;
  for (const auto& [size, count] : counts) {
    terms.push_back(str(count, " x ", size));
  }
  return join(terms, " + ");
}

std::string nearest_word(const std::string& word, const std::vector<std::string>& words) {
  if (words.empty()) {
    return "";
  }
  const std::string beginning = word.substr(0, kLongestCompared);
  const auto distance = [&](const std::string& candidate) {
    return std::pair(!candidate.starts_with(word), edit_distance(candidate, beginning));
  };
  return *std::min_element(words.begin(), words.end(),
                           [&](const std::string& a, const std::string& b) { return distance(a) < distance(b); });
}

std::string similar_word(const std::string& word, const std::vector<std::string>& words) {
  const std::string nearest = nearest_word(word, words);
  const size_t longer = std::max(word.size(), nearest.size());
  const bool is_similar = longer <= kLongestCompared && edit_distance(nearest, word) <= (longer + 2) / 3;
  return is_similar || (!word.empty() && nearest.starts_with(word)) ? nearest : "";
}

}  // namespace vit_hybrid
