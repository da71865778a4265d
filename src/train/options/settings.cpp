// Settings: merging of sources and their application to the table.
#include "src/train/options/settings.h"

#include <algorithm>
#include <utility>

#include "src/base/error.h"
#include "src/base/text.h"
#include "src/base/utf8.h"

namespace vit_hybrid::options {

namespace {

// Where the name that was written is another one than the option's, both are said.
std::string shown_name(const Entry& entry, const Option& option) {
  const bool is_alias = canonical_name(entry.name) != option.name;
  return is_alias ? str("'", shown(entry.name), "' (", option.name, ")") : str("'", entry.name, "'");
}

constexpr size_t kMostShown = 20;  // problems in a message

}  // namespace

void Settings::add(const Source& source) {
  std::map<const Option*, Entry> layer;
  for (Entry entry : source) {
    const Option* option = read(entry);
    if (option == nullptr) {
      continue;
    }
    const auto [place, is_new] = layer.emplace(option, entry);
    if (is_new) {
      continue;
    }
    const std::string twice = str(entry.origin, ": ", shown_name(entry, *option), " is given twice, as '",
                                  shown(place->second.text), "' and '", shown(entry.text), "'; ");
    if (entry.place == Place::kCommandLine) {
      remarks_.push_back(twice + "the last one counts");
      place->second = std::move(entry);
    } else {
      problems_.push_back(twice + "keep one");
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

// The option that an entry is about, and its text as the option has it; null for what says nothing of an option.
const Option* Settings::read(Entry& entry) {
  const Named* const named = table_.find_name(entry.name);
  if (named == nullptr) {
    add_unknown(entry);
    return nullptr;
  }
  if (named->option->scope == Scope::kCommandLineOnly && entry.place != Place::kCommandLine) {
    problems_.push_back(str(entry.origin, ": '", entry.name, "' is for the command line only"));
    return nullptr;
  }
  if (named->value.empty()) {
    return named->option;
  }
  bool is_set = false;
  if (const Value value = flag(is_set); !value.parse(entry.text)) {
    problems_.push_back(
        str(entry.origin, ": '", entry.name, "' is '", shown(entry.text), "'; allowed: ", allowed_text(value)));
  }
  entry.text = named->value;
  return is_set ? named->option : nullptr;
}

void Settings::add_unknown(const Entry& entry) {
  const auto unused = table_.unused_keys().find(canonical_name(entry.name));
  const bool is_from_file = entry.place == Place::kFile;
  if (unused == table_.unused_keys().end() || !is_from_file) {
    // What will not be shown need not be looked for.
    const std::string meant = problems_.size() < kMostShown ? table_.meant_by(entry.name) : "";
    problems_.push_back(str(entry.origin, ": unknown ", is_from_file ? "key" : "option", " '", shown(entry.name),
                            "'; did you mean '", meant, "'?"));
  } else if (unused->second.empty()) {
    if (std::find(unused_keys_.begin(), unused_keys_.end(), entry.name) == unused_keys_.end()) {
      unused_keys_.push_back(entry.name);
    }
  } else if (unused->second != entry.text) {
    problems_.push_back(
        str(entry.origin, ": '", entry.name, "' is '", shown(entry.text), "'; allowed: ", unused->second, " only"));
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
  problems_.push_back(str(entry.origin, ": ", shown_name(entry, option), " is '", shown(entry.text),
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
  if (problems.size() == 1) {
    return problems.front();
  }
  const std::vector<std::string> first(
      problems.begin(), problems.begin() + static_cast<std::ptrdiff_t>(std::min(problems.size(), kMostShown)));
  const size_t more = problems.size() - first.size();
  return str(problems.size(), " problems in the configuration:\n  ", join(first, "\n  "),
             more > 0 ? str("\n  and ", more, " more") : "");
}

}  // namespace vit_hybrid::options
