// Nearest word: by the fewest changes of a character.
#include "src/base/nearest_word.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace vit_hybrid {

namespace {

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

}  // namespace vit_hybrid
