// OptionTable: names, look-up and the nearest neighbour of a wrong name.
#include "src/config/option_table.h"

#include <algorithm>
#include <cctype>
#include <utility>

#include "src/base/error.h"
#include "src/base/nearest_word.h"

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
  const auto know = [&](const std::string& name, const MegatronName& flag) {
    const bool is_new = by_name_.emplace(canonical_name(name), Named{&added, flag.value, flag.value_off}).second;
    VH_ASSERT(is_new, "option " + name + " is in the table twice");
  };
  know(added.name, {});
  for (const std::string& alias : added.aliases) {
    know(alias, {});
  }
  for (const MegatronName& other : added.megatron) {
    if (other.name != added.name) {
      know(other.name, other);
    }
  }
}

const Named* OptionTable::find_name(const std::string& name) const {
  const auto found = by_name_.find(canonical_name(name));
  return found == by_name_.end() ? nullptr : &found->second;
}

const Option* OptionTable::find(const std::string& name) const {
  const Named* const named = find_name(name);
  return named == nullptr ? nullptr : named->option;
}

std::string OptionTable::meant_by(const std::string& name) const {
  const std::string canonical = canonical_name(name);
  for (const Option& option : options_) {
    const auto& others = option.names_elsewhere;
    if (std::find(others.begin(), others.end(), canonical) != others.end()) {
      return option.name;
    }
  }
  std::vector<std::string> names;
  for (const auto& [known, named] : by_name_) {
    names.push_back(known);
  }
  return nearest_word(canonical, names);
}

}  // namespace vit_hybrid::options
