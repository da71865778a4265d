// OptionTable: names, look-up and the nearest neighbour of a wrong name.
#include "src/train/options/option_table.h"

#include <algorithm>
#include <cctype>
#include <utility>

#include "src/base/error.h"
#include "src/base/nearest_word.h"
#include "src/base/text.h"

namespace vit_hybrid::options {

namespace {

std::string replaced(std::string text, char from, char to) {
  std::replace(text.begin(), text.end(), from, to);
  return text;
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

std::string OptionTable::meant_by(const std::string& name, const std::string& separator) const {
  for (const Option& option : options_) {
    const auto& flags = option.flags_elsewhere;
    if (std::find(flags.begin(), flags.end(), name) != flags.end()) {
      return str(option.name, separator, name);
    }
  }
  std::vector<std::string> names;
  for (const auto& [known, option] : by_name_) {
    names.push_back(known);
  }
  return nearest_word(canonical_name(name), names);
}

}  // namespace vit_hybrid::options
