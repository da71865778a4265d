// OptionTable: names, look-up and the nearest neighbour of a wrong name.
#include "src/train/options/option_table.h"

#include <algorithm>
#include <cctype>
#include <numeric>
#include <utility>

#include "src/base/error.h"

namespace vit_hybrid::options {

namespace {

std::string replaced(std::string text, char from, char to) {
  std::replace(text.begin(), text.end(), from, to);
  return text;
}

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

std::string canonical_name(std::string name) {
  return replaced(std::move(name), '_', '-');
}

std::string yaml_key(std::string name) {
  return replaced(std::move(name), '-', '_');
}

std::string environment_name(const std::string& name) {
  std::string out = "VIT_HYBRID_" + yaml_key(name);
  std::transform(out.begin(), out.end(), out.begin(), [](unsigned char c) { return std::toupper(c); });
  return out;
}

std::string nearest_word(const std::string& word, const std::vector<std::string>& words) {
  VH_ASSERT(!words.empty(), word);
  const auto distance = [&](const std::string& candidate) {
    return std::pair(!candidate.starts_with(word), edit_distance(candidate, word));
  };
  return *std::min_element(words.begin(), words.end(),
                           [&](const std::string& a, const std::string& b) { return distance(a) < distance(b); });
}

void OptionTable::add(Option option) {
  option.group = group_;
  options_.push_back(std::move(option));
  const Option& added = options_.back();
  std::vector<std::string> names = added.aliases;
  names.push_back(added.name);
  for (const auto& name : names) {
    const bool is_new = by_name_.emplace(canonical_name(name), &added).second;
    VH_ASSERT(is_new, "option " + name + " is in the table twice");
  }
}

const Option* OptionTable::find(const std::string& name) const {
  const auto found = by_name_.find(canonical_name(name));
  return found == by_name_.end() ? nullptr : found->second;
}

std::string OptionTable::nearest(const std::string& name) const {
  std::vector<std::string> names;
  for (const auto& [known, option] : by_name_) {
    names.push_back(known);
  }
  return nearest_word(canonical_name(name), names);
}

}  // namespace vit_hybrid::options
