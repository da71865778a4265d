// Settings: what the sources of a configuration say, later sources over earlier ones, until it is applied to a table.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "src/config/option_table.h"

namespace vit_hybrid::options {

/// Kinds of sources, in rising precedence.
enum class Place { kProgram, kFile, kEnvironment, kCommandLine };

/// One "name: value" of a source, as it was written.
struct Entry {
  std::string name;
  std::string text;
  Place place = Place::kProgram;
  std::string origin;        ///< "built-in default", "configs/a.yaml:12", "environment VIT_HYBRID_LR", "command line"
  std::string written = {};  ///< of a ShiftedName: what was there in place of `text`
};

/// Entries of one source in order of writing.
using Source = std::vector<Entry>;

/// The entries that count, by option.
class Settings {
 public:
  explicit Settings(const OptionTable& table) : table_(table) {}

  /// Adds a source over those that are there. Unknown names become problems, and so do options given twice; on the
  /// command line the last of them counts, which is a remark, but for numbers of two programs that differ. What earlier
  /// sources said of the options in Option::forgets of one given here is forgotten, and so is the value that a flag
  /// stands for which is off here.
  void add(const Source& source);

  /// The entry that counts for an option, or null.
  const Entry* find(const std::string& name) const;

  /// Parses the entry of every option that has one into its variable, a list with the words of each AddingFlag that the
  /// last source to give it has on; what is not allowed becomes a problem.
  void apply_all();

  const std::vector<std::string>& problems() const { return problems_; }
  /// What a user should know though nothing is wrong with it, a line each.
  const std::vector<std::string>& remarks() const { return remarks_; }
  /// Names of the options whose text was not allowed.
  const std::vector<std::string>& misread_options() const { return misread_options_; }
  /// Keys without meaning that were given, each once, in order of appearance.
  const std::vector<std::string>& unused_keys() const { return unused_keys_; }

 private:
  using Layer = std::map<const Named*, Entry>;  // by own names of options, and AddingFlags

  const Named* read(Entry& entry, Layer& layer);
  bool read_value(const Entry& entry, const Value& value);
  void add_words();
  void take_back(const Named& named, const Named* own, const Entry& entry, Layer& layer);
  bool counts_after(const Entry& first, const Entry& second, const Option& option);
  void add_unknown(const Entry& entry);

  const OptionTable& table_;
  Layer entries_;
  std::vector<std::string> problems_;
  std::vector<std::string> remarks_;
  std::vector<std::string> misread_options_;
  std::vector<std::string> unused_keys_;
};

/// One message from several problems: the problem itself, or a count and one line each, of the first twenty.
std::string problem_list(const std::vector<std::string>& problems);

}  // namespace vit_hybrid::options
