// Settings: merging of sources and their application to the table.
#include "src/config/settings.h"

#include <algorithm>
#include <cctype>
#include <utility>

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
constexpr const char* kOn = "true";

// As it was written, and what that is here.
std::string shown_value(const Entry& entry, const Option& option) {
  return entry.written.empty() ? str("'", shown(entry.text), "'")
                               : str("'", shown(entry.written), "' (", option.name, " ", shown(entry.text), ")");
}

bool is_same_word(const std::string& a, const std::string& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](unsigned char x, unsigned char y) { return std::tolower(x) == std::tolower(y); });
}

}  // namespace

void Settings::add(const Source& source) {
  Layer layer;
  for (Entry entry : source) {
    const Named* named = read(entry, layer);
    if (named == nullptr) {
      continue;
    }
    const auto [place, is_new] = layer.emplace(named, entry);
    if (!is_new && counts_after(place->second, entry, *named->option)) {
      place->second = std::move(entry);
    }
  }
  for (const auto& [named, entry] : layer) {
    for (const auto& name : named->option->forgets) {
      entries_.erase(table_.find_name(name));
    }
  }
  for (auto& [named, entry] : layer) {
    entries_.insert_or_assign(named, std::move(entry));
  }
}

// What an entry is about, and its text as that has it; null for what says nothing of an option.
const Named* Settings::read(Entry& entry, Layer& layer) {
  const Named* const named = table_.find_name(entry.name);
  if (named == nullptr) {
    add_unknown(entry);
    return nullptr;
  }
  if (named->option->scope == Scope::kCommandLineOnly && entry.place != Place::kCommandLine) {
    problems_.push_back(str(entry.origin, ": '", entry.name, "' is for the command line only"));
    return nullptr;
  }
  const Named* const own = table_.own_name(*named->option);
  if (named->shifted != nullptr) {
    int64_t number = 0;
    const bool is_read = read_value(entry, integer(number, named->shifted->range));
    entry.written = std::exchange(entry.text, str(number + named->shifted->more));
    return is_read ? own : nullptr;
  }
  if (named->value.empty() && named->adding == nullptr) {
    return own;
  }
  bool is_set = false;
  if (!read_value(entry, flag(is_set))) {
    return nullptr;
  }
  if (named->adding != nullptr) {
    entry.text = is_set ? kOn : "false";
    return named;
  }
  if (!is_set && named->value_off.empty()) {
    take_back(*named, own, entry, layer);
    return nullptr;
  }
  entry.text = is_set ? named->value : named->value_off;
  return own;
}

// Whether the text is allowed by another name's own value.
bool Settings::read_value(const Entry& entry, const Value& value) {
  const bool is_allowed = value.parse(entry.text);
  if (!is_allowed) {
    problems_.push_back(
        str(entry.origin, ": '", entry.name, "' is '", shown(entry.text), "'; allowed: ", allowed_text(value)));
  }
  return is_allowed;
}

// Of other values of the option a flag that is off says nothing.
void Settings::take_back(const Named& named, const Named* own, const Entry& entry, Layer& layer) {
  const auto is_meant = [&](const auto& of, auto found) {
    return found != of.end() && is_same_word(found->second.text, named.value);
  };
  if (const auto found = layer.find(own); is_meant(layer, found) && counts_after(found->second, entry, *named.option)) {
    layer.erase(found);
  }
  if (const auto found = entries_.find(own); is_meant(entries_, found)) {
    entries_.erase(found);
  }
}

// Says that a source gives an option twice; whether the second time counts.
bool Settings::counts_after(const Entry& first, const Entry& second, const Option& option) {
  const bool is_of_two_programs = first.written.empty() != second.written.empty();
  if (is_of_two_programs && first.text == second.text) {
    return false;  // the same is said twice
  }
  const std::string twice = str(second.origin, ": ", shown_name(second, option), " is given twice, as ",
                                shown_value(first, option), " and ", shown_value(second, option), "; ");
  const bool counts = second.place == Place::kCommandLine && !is_of_two_programs;
  if (counts) {
    remarks_.push_back(twice + "the last one counts");
  } else {
    problems_.push_back(twice + "keep one");
  }
  return counts;
}

void Settings::add_unknown(const Entry& entry) {
  const auto unused = table_.unused_keys().find(canonical_name(entry.name));
  const bool is_from_file = entry.place == Place::kFile;
  if (unused == table_.unused_keys().end() || !is_from_file) {
    // What will not be shown need not be looked for.
    const std::string meant = problems_.size() < kMostShown ? table_.meant_by(entry.name) : "";
    problems_.push_back(str(entry.origin, ": unknown ", is_from_file ? "key" : "option", " '", shown(entry.name), "'",
                            meant.empty() ? "" : str("; did you mean '", meant, "'?")));
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
  const Option* const option = table_.find(name);
  const auto found = option == nullptr ? entries_.end() : entries_.find(table_.own_name(*option));
  return found == entries_.end() ? nullptr : &found->second;
}

// As if the words of flags were written at the end of their lists, by the later of the two sources.
void Settings::add_words() {
  for (const auto& [name, named] : table_.names()) {
    const auto flag = named.adding == nullptr ? entries_.end() : entries_.find(&named);
    if (flag == entries_.end() || flag->second.text != kOn) {
      continue;
    }
    Entry none = flag->second;
    none.name = named.option->name;
    none.text = named.option->value.print();
    Entry& list = entries_.try_emplace(table_.own_name(*named.option), std::move(none)).first->second;
    if (named.adding->is_in(list.text)) {
      continue;
    }
    list.text += (list.text.empty() ? "" : ",") + named.adding->word;
    if (flag->second.place > list.place) {
      list.place = flag->second.place;
      list.origin = flag->second.origin;
    }
  }
}

void Settings::apply_all() {
  add_words();
  for (const Option& option : table_.options()) {
    const Entry* const entry = find(option.name);
    if (entry != nullptr && !option.value.parse(entry->text)) {
      misread_options_.push_back(option.name);
      problems_.push_back(str(entry->origin, ": ", shown_name(*entry, option), " is '", shown(entry->text),
                              "'; allowed: ", allowed_text(option.value)));
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
