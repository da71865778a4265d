// OptionTable: the one list of options behind command line, YAML, environment, help and documentation.
#pragma once

#include <deque>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "src/config/option.h"

namespace vit_hybrid::options {

/// A name as the table writes it: lower-case letters as given, '_' as '-'.
std::string canonical_name(std::string name);
/// The name as a YAML key ('_') and as an environment variable (VIT_HYBRID_...).
std::string yaml_key(std::string name);
std::string environment_name(const std::string& name);

/// What a name stands for: an option, or one value of it that is given as a flag (not empty).
struct Named {
  const Option* option = nullptr;
  std::string value = {};
  std::string value_off = {};  ///< see MegatronName

  bool is_flag() const { return option->value.kind == Kind::kFlag || !value.empty(); }
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

  /// A key of another program's configuration that is accepted in YAML and has no meaning here.
  void accept_unused(const std::string& key) { unused_keys_[canonical_name(key)] = {}; }
  /// The same for a key that may have one value only (others would mean what this program does not do).
  void accept_fixed(const std::string& key, std::string value) { unused_keys_[canonical_name(key)] = std::move(value); }

  /// The option of a name, alias or Megatron's name in any spelling, or null.
  const Option* find(const std::string& name) const;
  /// The same with the value that a flag stands for; null for a name that is not known.
  const Named* find_name(const std::string& name) const;
  /// What is meant by a name that is not known: the option of which it is one of Option::names_elsewhere, else the
  /// nearest name.
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

/// The names of Megatron-LM that the table accepts, and what they are here, as Markdown.
std::string megatron_markdown(const OptionTable& table);

}  // namespace vit_hybrid::options
