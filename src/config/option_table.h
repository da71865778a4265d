// Options: their values, ranges and names, tables of them, and the help that is made of those.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "src/base/json.h"

namespace vit_hybrid::options {

enum class Kind { kInteger, kNumber, kFlag, kText, kChoice, kExtent };

/// A variable behind text. parse() reads the text into the variable and says whether it was allowed; an allowed text
/// never means two things, and a variable keeps its value when its text was not.
struct Value {
  Kind kind = Kind::kText;
  std::string type;     ///< what a user has to write: "integer", "number", "text", "folder", "HxW", ...
  std::string allowed;  ///< range or choices as text; empty: everything of the type
  std::function<bool(const std::string&)> parse;
  std::function<std::string()> print;
  std::string word = {};  ///< allowed too
  Json schema = {};       ///< JSON Schema of what a file may have, without the word
};

/// What is allowed, as a table says it that has a column for the type: "auto, or at least 1".
std::string allowed_column(const Value& value);
/// The same as the end of a sentence: "auto, or an integer at least 1".
std::string allowed_text(const Value& value);

/// Bounds of an integer, and a word ("auto", "none") with the number that it stands for, which is not to be written as
/// one unless it lies within the bounds.
struct IntegerRange {
  int64_t least = std::numeric_limits<int64_t>::min();
  int64_t most = std::numeric_limits<int64_t>::max();
  std::string word = {};
  int64_t word_value = 0;
};

/// Bounds of a finite number; a bound may be left out of the range.
struct NumberRange {
  enum class Bound { kIncluded, kExcluded };
  double least = -std::numeric_limits<double>::max();
  double most = std::numeric_limits<double>::max();
  Bound least_bound = Bound::kIncluded;
  Bound most_bound = Bound::kIncluded;
  std::string word = {};
  double word_value = 0.0;
};

Value integer(int64_t& variable, const IntegerRange& range);
Value integer(int& variable, IntegerRange range);
Value integer(uint64_t& variable, IntegerRange range);
Value number(double& variable, const NumberRange& range);
/// true/false, yes/no, on/off, 1/0; on the command line also --name and --no-name.
Value flag(bool& variable);
/// Any text; `type` says what of ("text", "file", "folder").
Value text(std::string& variable, std::string type);
/// How a square is printed: "8", or "8x8".
enum class SquareText { kOneNumber, kTwoNumbers };
/// Height and width: "360x720", "[360, 720]" in YAML, or one number for a square.
Value extent(int64_t& height, int64_t& width, int64_t most, SquareText square = SquareText::kTwoNumbers);
/// One of a few words; nothing at all, or "none", where the variable is empty to begin with.
Value word(std::string& variable, const std::vector<std::string>& words);
/// A text that is added to the list each time it is given.
Value text_list(std::vector<std::string>& variable, std::string type);

/// Parts shared by the choices of every enumeration: `names` are the words in order of the values that `set` and `get`
/// take as positions; `synonyms` are accepted but not shown.
Value choice(std::vector<std::string> names, std::vector<std::pair<std::string, size_t>> synonyms,
             std::function<void(size_t)> set, std::function<size_t()> get);

/// One word for each enumerator 0, 1, ...; upper and lower case are the same.
template <class Enum>
Value choice(Enum& variable, std::vector<std::string> names,
             const std::vector<std::pair<std::string, Enum>>& synonyms = {}) {
  std::vector<std::pair<std::string, size_t>> positions;
  for (const auto& [name, value] : synonyms) {
    positions.emplace_back(name, static_cast<size_t>(value));
  }
  return choice(
      std::move(names), std::move(positions), [&variable](size_t i) { variable = static_cast<Enum>(i); },
      [&variable] { return static_cast<size_t>(variable); });
}

/// Where an option may be given.
enum class Scope { kEverywhere, kCommandLineOnly };

/// A name that an option has in Megatron-LM; a flag there where `value` is the one of the option that it stands for.
struct MegatronName {
  std::string name;
  std::string value = {};
  /// The option's value where the flag is off; empty: any but `value`, so that only where `value` was said before, it
  /// is taken back.
  std::string value_off = {};
};

/// A name of an option of integers in a program that counts otherwise: n there is n + `more` here.
struct ShiftedName {
  std::string name;
  IntegerRange range;  ///< of what is written there
  int64_t more = 0;
};

/// A flag of another program that puts a word into an option's list, whichever source gives that; off, it adds nothing.
struct AddingFlag {
  std::string name;
  std::string word;
  /// Whether a list has the word already, under this name or another one.
  std::function<bool(const std::string& list)> is_in;
};

/// One row of a table of options.
struct Option {
  std::string name;  ///< with '-'
  Value value;
  std::string help;                       ///< one sentence
  std::string unit = {};                  ///< "s", "MiB", "samples"
  std::vector<std::string> aliases = {};  ///< other names, with '-'
  /// Options of which a source that gives this one makes earlier sources be forgotten: a preset those that it sets, one
  /// of two ways to say a number the other.
  std::vector<std::string> forgets = {};
  std::vector<MegatronName> megatron = {};  ///< accepted like aliases; the option's own name where it is the same
  std::vector<ShiftedName> shifted_names = {};
  std::vector<AddingFlag> adding_flags = {};
  /// What other programs call it, where that is no name here: who gives one is told this option.
  std::vector<std::string> names_elsewhere = {};
  Scope scope = Scope::kEverywhere;
  std::string group = {};  ///< heading; filled in by the table
};

/// A name as the table writes it: lower-case letters as given, '_' as '-'.
std::string canonical_name(std::string name);
/// The name as a YAML key ('_') and as an environment variable (VIT_HYBRID_...).
std::string yaml_key(std::string name);
std::string environment_name(const std::string& name);

/// What a name stands for: an option, one value of it that is given as a flag (not empty), or one of the others.
struct Named {
  const Option* option = nullptr;
  std::string value = {};
  std::string value_off = {};  ///< see MegatronName
  const ShiftedName* shifted = nullptr;
  const AddingFlag* adding = nullptr;

  bool is_flag() const { return option->value.kind == Kind::kFlag || !value.empty() || adding != nullptr; }
};

/// Options in groups, bound to variables that must outlive the table. Options stay where they are.
class OptionTable {
 public:
  OptionTable() = default;
  OptionTable(OptionTable&&) = default;
  OptionTable(const OptionTable&) = delete;
  OptionTable& operator=(const OptionTable&) = delete;

  /// Options added from here on stand under this heading.
  void begin_group(std::string heading) { group_ = std::move(heading); }
  /// A name that is there already is a broken invariant.
  void add(Option option);

  /// A key of another program's configuration that is accepted in YAML and has no meaning here; where a `value` is
  /// given, with that value only (others would mean what this program does not do).
  void accept_unused(const std::string& key, std::string value = {}) {
    unused_keys_[canonical_name(key)] = std::move(value);
  }

  /// The option of a name, alias or Megatron's name in any spelling, or null.
  const Option* find(const std::string& name) const;
  /// The same with the value that a flag stands for; null for a name that is not known.
  const Named* find_name(const std::string& name) const;
  /// What the option's own name stands for.
  const Named* own_name(const Option& option) const { return find_name(option.name); }
  /// What is meant by a name that is not known: the one that is similar_word(), or the option of which that is one of
  /// Option::names_elsewhere; empty if none is.
  std::string meant_by(const std::string& name) const;
  /// All names by which options are known, as canonical_name() has them.
  const std::map<std::string, Named>& names() const { return by_name_; }
  const std::deque<Option>& options() const { return options_; }
  /// Keys accepted without meaning, and the value they must have (empty: any).
  const std::map<std::string, std::string>& unused_keys() const { return unused_keys_; }

 private:
  std::string group_;
  std::deque<Option> options_;
  std::map<std::string, Named> by_name_;
  std::map<std::string, std::string> unused_keys_;
};

/// The options in their groups with defaults, ranges and units, for a terminal. The variables hold the defaults.
std::string help_text(const OptionTable& table);

/// The same as a Markdown table a group, for docs/options.md.
std::string markdown_text(const OptionTable& table);

/// The same as JSON, an object an option: its names, type, what is allowed, default, unit, meaning and group.
Json json_table(const OptionTable& table);

/// JSON Schema (draft 2020-12) of a YAML file of these options: settings, or sections of them, with the names that the
/// table knows, written with '_', and the words that it shows. For editors, and docs/schemas.
Json json_schema(const OptionTable& table);

/// The names of Megatron-LM that the table accepts, and what they are here, as Markdown.
std::string megatron_markdown(const OptionTable& table);

/// Steps counted from the start of the run, both ends included; 0 to 0: none.
struct StepRange {
  int64_t first = 0;
  int64_t last = 0;

  bool any() const { return last > 0; }
  /// "10-12", "10" of one step, or "none".
  std::string text() const;
};

/// An option's value: "none", or `head` and a range.
Value step_range(StepRange& steps, const std::string& head = {});

}  // namespace vit_hybrid::options
