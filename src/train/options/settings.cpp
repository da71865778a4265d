// Settings: merging of sources and their application to the table.
#include "src/train/options/settings.h"

#include <algorithm>

#include "src/base/error.h"
#include "src/base/text.h"

namespace vit_hybrid::options {

namespace {

// Where the name that was written is another one than the option's, both are said.
std::string shown_name(const Entry& entry, const Option& option) {
  const bool is_alias = canonical_name(entry.name) != option.name;
  return is_alias ? str("'", entry.name, "' (", option.name, ")") : str("'", entry.name, "'");
}

}  // namespace

void Settings::add(const Source& source) {
  std::map<const Option*, Entry> layer;
  for (const Entry& entry : source) {
    const Option* option = table_.find(entry.name);
    if (option == nullptr) {
      add_unknown(entry);
      continue;
    }
    if (option->scope == Scope::kCommandLineOnly && entry.place != Place::kCommandLine) {
      problems_.push_back(str(entry.origin, ": '", entry.name, "' is for the command line only"));
      continue;
    }
    const auto [place, is_new] = layer.emplace(option, entry);
    if (!is_new) {
      problems_.push_back(str(entry.origin, ": ", shown_name(entry, *option), " is given twice, as '",
                              place->second.text, "' and '", entry.text, "'; keep one"));
    }
  }
  for (const auto& [option, entry] : layer) {
    for (const auto& name : option->forgets) {
      entries_.erase(table_.find(name));
    }
  }
  for (auto& [option, entry] : layer) {
    entries_.insert_or_assign(option, std::move(entry));
  }
}

void Settings::add_unknown(const Entry& entry) {
  const auto unused = table_.unused_keys().find(canonical_name(entry.name));
  const bool is_from_file = entry.place == Place::kFile;
  if (unused == table_.unused_keys().end() || !is_from_file) {
    problems_.push_back(str(entry.origin, ": unknown ", is_from_file ? "key" : "option", " '", entry.name,
                            "'; did you mean '", table_.meant_by(entry.name, is_from_file ? ": " : "="), "'?"));
  } else if (unused->second.empty()) {
    if (std::find(unused_keys_.begin(), unused_keys_.end(), entry.name) == unused_keys_.end()) {
      unused_keys_.push_back(entry.name);
    }
  } else if (unused->second != entry.text) {
    problems_.push_back(
        str(entry.origin, ": '", entry.name, "' is '", entry.text, "'; allowed: ", unused->second, " only"));
  }
}

const Entry* Settings::find(const std::string& name) const {
  const auto found = entries_.find(table_.find(name));
  return found == entries_.end() ? nullptr : &found->second;
}

void Settings::apply(const Option& option, const Entry& entry) {
  if (option.value.parse(entry.text)) {
    return;
  }
  misread_options_.push_back(option.name);
  problems_.push_back(str(entry.origin, ": ", shown_name(entry, option), " is '", entry.text,
                          "'; allowed: ", allowed_text(option.value)));
}

void Settings::apply_all() {
  for (const Option& option : table_.options()) {
    if (const auto found = entries_.find(&option); found != entries_.end()) {
      apply(option, found->second);
    }
  }
}

std::string problem_list(const std::vector<std::string>& problems) {
  return problems.size() == 1 ? problems.front()
                              : str(problems.size(), " problems in the configuration:\n  ", join(problems, "\n  "));
}

}  // namespace vit_hybrid::options
