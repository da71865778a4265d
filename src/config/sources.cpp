// Boost.Program_options, the environment and yaml-cpp behind one list of settings.
#include "src/config/sources.h"

#include <unistd.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>
#include <boost/program_options.hpp>

#include <algorithm>
#include <cctype>
#include <map>
#include <sstream>
#include <string_view>
#include <utility>

#include "src/base/error.h"
#include "src/base/text.h"
#include "src/base/utf8.h"

namespace vit_hybrid::options {

namespace {

namespace po = boost::program_options;

constexpr const char* kNegation = "no-";
constexpr std::string_view kPrefix = "VIT_HYBRID_";
constexpr std::string_view kTestPrefix = "VIT_HYBRID_TEST_";

// Words that begin with two dashes, with '-' for '_' in the name; "-h" is the only short one.
std::vector<std::string> with_canonical_names(std::vector<std::string> words) {
  for (std::string& word : words) {
    if (word == "-h") {
      word = "--help";
    } else if (word.starts_with("--")) {
      const auto end = std::find(word.begin(), word.end(), '=');
      std::replace(word.begin(), end, '_', '-');
    }
  }
  return words;
}

po::options_description describe(const OptionTable& table) {
  po::options_description description;
  for (const auto& [name, named] : table.names()) {
    if (named.is_flag()) {
      description.add_options()(name.c_str(), po::value<std::string>()->implicit_value("true"), "");
      description.add_options()((kNegation + name).c_str(), "");
    } else {
      description.add_options()(name.c_str(), po::value<std::string>(), "");
    }
  }
  return description;
}

[[noreturn]] void refuse(const std::string& what, const std::string& hint) {
  throw Error(ErrorClass::kUsage, "command line: " + what, hint);
}

[[noreturn]] void refuse_missing_value(const Option& option, const std::string& name) {
  refuse(str("option '--", name, "' needs a value"), str("give --", name, " <", option.value.type, ">"));
}

std::string without_dashes(const std::string& name) {
  return name.substr(std::min(name.find_first_not_of('-'), name.size()));
}

po::parsed_options parse(const OptionTable& table, const po::options_description& description,
                         const std::vector<std::string>& words) {
  using namespace po::command_line_style;
  try {
    return po::command_line_parser(words)
        .options(description)
        .style(allow_long | long_allow_adjacent | long_allow_next)
        .run();
  } catch (const po::unknown_option& error) {
    const std::string name = without_dashes(error.get_option_name());
    const std::string meant = table.meant_by(name);
    refuse(str("unknown option '--", shown(name), "'"),
           meant.empty() ? "--help lists those that there are" : str("did you mean '--", meant, "'?"));
  } catch (const po::error_with_option_name& error) {
    const std::string name = without_dashes(error.get_option_name());
    if (const Option* option = table.find(name)) {
      refuse_missing_value(*option, name);
    }
    refuse(str("option '--", shown(name), "' takes no value"), "");
  } catch (const po::error& error) {
    refuse(shown(error.what()), "");
  }
}

Entry entry_of(const OptionTable& table, const po::option& parsed) {
  Entry entry{parsed.string_key, parsed.value.empty() ? "" : parsed.value.front(), Place::kCommandLine, "command line"};
  const Option* option = table.find(entry.name);
  if (option == nullptr) {
    return {entry.name.substr(std::string(kNegation).size()), "false", entry.place, entry.origin};
  }
  if (parsed.value.empty()) {
    entry.text = "true";  // a flag without a value
  }
  // Boost takes the word after an option as its value even if it looks like another option.
  if (parsed.original_tokens.size() > 1 && entry.text.starts_with("--")) {
    refuse_missing_value(*option, entry.name);
  }
  return entry;
}

constexpr const char* kMergeKey = "<<";
constexpr int kDeepestMerge = 64;  // an anchor that merges itself would never end
constexpr size_t kMostNodes = 100'000;
constexpr size_t kMostBytes = 4 * kMostYamlBytes;
constexpr size_t kLongestPath = 4096;

std::string place_of(const std::string& file, const YAML::Mark& mark) {
  return str(shown(file, kLongestPath), ":", mark.line + 1);
}

[[noreturn]] void refuse(ErrorClass error_class, const std::string& place, const std::string& what,
                         const std::string& hint = {}) {
  throw Error(error_class, place + ": " + what, hint);
}

// yaml-cpp takes some of these for the end of the file, and at others never ends.
void check_text(const std::string& file, const std::string& content) {
  const size_t at = find_no_text(content);
  if (at != content.size()) {
    const auto line = std::count(content.begin(), content.begin() + static_cast<std::ptrdiff_t>(at), '\n') + 1;
    refuse(ErrorClass::kBadData, str(shown(file, kLongestPath), ":", line),
           "this is not YAML: a byte that is no text in UTF-8");
  }
}

// Notes where documents begin.
class DocumentStarts : public YAML::EventHandler {
 public:
  const YAML::Mark& last() const { return last_; }
  void OnDocumentStart(const YAML::Mark& mark) override { last_ = mark; }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark&, YAML::anchor_t) override {}
  void OnAlias(const YAML::Mark&, YAML::anchor_t) override {}
  void OnScalar(const YAML::Mark&, const std::string&, YAML::anchor_t, const std::string&) override {}
  void OnSequenceStart(const YAML::Mark&, const std::string&, YAML::anchor_t, YAML::EmitterStyle::value) override {}
  void OnSequenceEnd() override {}
  void OnMapStart(const YAML::Mark&, const std::string&, YAML::anchor_t, YAML::EmitterStyle::value) override {}
  void OnMapEnd() override {}

 private:
  YAML::Mark last_;
};

// YAML::LoadAll() would tell too, but never ends for some malformed files.
void check_one_document(const std::string& file, const std::string& content) {
  std::istringstream stream(content);
  YAML::Parser parser(stream);
  DocumentStarts starts;
  if (parser.HandleNextDocument(starts) && parser.HandleNextDocument(starts)) {
    refuse(ErrorClass::kBadData, place_of(file, starts.last()), "a second YAML document begins; keep one");
  }
}

YAML::Node load(const std::string& file, const std::string& content) {
  if (static_cast<int64_t>(content.size()) > kMostYamlBytes) {
    refuse(ErrorClass::kBadData, shown(file, kLongestPath),
           str("the text has ", content.size(), " bytes; allowed: at most ", kMostYamlBytes));
  }
  check_text(file, content);
  try {
    check_one_document(file, content);
    return YAML::Load(content);
  } catch (const YAML::Exception& error) {
    refuse(ErrorClass::kBadData, place_of(file, error.mark), "this is not YAML: " + error.msg);
  }
}

// Refuses keys that are not words, and keys that a map holds twice ('-' and '_' being the same).
void check_keys(const std::string& file, const YAML::Node& map) {
  std::map<std::string, int> lines;
  for (const auto& item : map) {
    const auto place = place_of(file, item.first.Mark());
    if (!item.first.IsScalar()) {
      refuse(ErrorClass::kUsage, place, "a key must be a word");
    }
    const std::string& key = item.first.Scalar();
    const auto [seen, is_new] = lines.emplace(canonical_name(key), item.first.Mark().line + 1);
    if (!is_new) {
      refuse(ErrorClass::kUsage, place, str("key '", shown(key), "' is given twice (first in line ", seen->second, ")"),
             "keep one");
    }
  }
}

// The sources that a map and what it merges make. An alias costs a few bytes and stands for a whole tree: what counts
// is what is walked over.
class Sources {
 public:
  explicit Sources(std::string file) : file_(std::move(file)) {}

  void add_map(const YAML::Node& map, int depth) {
    check_keys(file_, map);
    Source source;
    for (const auto& item : map) {
      const std::string& key = item.first.Scalar();
      count(item.first);
      if (key == kMergeKey) {
        add_merged(item.second, depth + 1);
      } else {
        source.push_back({key, text_of(key, item.second), Place::kFile, place_of(file_, item.first.Mark())});
      }
    }
    sources_.push_back(std::move(source));
  }

  std::vector<Source> take() { return std::move(sources_); }

 private:
  void count(const YAML::Node& node) {
    ++nodes_;
    bytes_ += node.IsScalar() ? node.Scalar().size() : 0;
    if (nodes_ > kMostNodes || bytes_ > kMostBytes) {
      refuse(ErrorClass::kBadData, place_of(file_, node.Mark()),
             str("with what its aliases and merge keys repeat the file has more than ", kMostNodes, " values or ",
                 kMostBytes, " bytes"),
             "configurations have some hundred values");
    }
  }

  // Of a list of maps, an earlier one goes before a later one, so the later one is added first.
  void add_merged(const YAML::Node& merged, int depth) {
    count(merged);
    if (depth > kDeepestMerge) {
      refuse(ErrorClass::kUsage, place_of(file_, merged.Mark()),
             str("merge keys go round in a circle, or more than ", kDeepestMerge, " deep"));
    }
    if (merged.IsMap()) {
      add_map(merged, depth);
    } else if (merged.IsSequence()) {
      for (size_t i = merged.size(); i-- > 0;) {
        add_merged(merged[i], depth + 1);
      }
    } else {
      refuse(ErrorClass::kUsage, place_of(file_, merged.Mark()), "'<<' must be followed by a map, as in '<<: *base'");
    }
  }

  std::string text_of(const std::string& key, const YAML::Node& value) {
    count(value);
    if (value.IsScalar()) {
      return value.Scalar();
    }
    if (value.IsNull()) {
      return "";
    }
    if (value.IsMap() && key == "variables") {
      std::vector<std::string> pairs;
      for (const auto& item : value) {
        pairs.push_back(str(plain_value(key, item.first), "=", plain_value(key, item.second)));
      }
      return join(pairs, ",");
    }
    if (!value.IsSequence()) {
      refuse(ErrorClass::kUsage, place_of(file_, value.Mark()),
             str("the value of '", shown(key), "' is a map; it must be one value"),
             "keys stand side by side, not in groups");
    }
    std::vector<std::string> parts;
    for (const auto& part : value) {
      parts.push_back(part.IsMap() ? text_of_map(key, part) : plain_value(key, part));
    }
    return join(parts, ",");
  }

  std::string plain_value(const std::string& key, const YAML::Node& value) {
    if (!value.IsScalar()) {
      refuse(ErrorClass::kUsage, place_of(file_, value.Mark()),
             str("the list of '", shown(key), "' must hold plain values"));
    }
    count(value);
    return value.Scalar();
  }

  // In a list: {z: [500, 850]} is "z:500:850".
  std::string text_of_map(const std::string& key, const YAML::Node& map) {
    count(map);
    std::vector<std::string> parts;
    for (const auto& item : map) {
      std::string text = plain_value(key, item.first);
      if (item.second.IsSequence()) {
        count(item.second);
        for (const auto& value : item.second) {
          text += ":" + plain_value(key, value);
        }
      } else {
        text += ":" + plain_value(key, item.second);
      }
      parts.push_back(std::move(text));
    }
    return join(parts, ",");
  }

  std::string file_;
  std::vector<Source> sources_;
  size_t nodes_ = 0;
  size_t bytes_ = 0;
};

std::vector<std::string> section_names(const YAML::Node& root) {
  std::vector<std::string> names;
  for (const auto& item : root) {
    if (item.second.IsMap() && item.first.Scalar() != kMergeKey) {
      names.push_back(item.first.Scalar());
    }
  }
  return names;
}

// The map with the settings: the root, or the section asked for.
YAML::Node chosen_map(const ConfigPath& path, const YAML::Node& root) {
  const auto sections = section_names(root);
  if (path.section.empty()) {
    if (sections.size() > 1) {
      refuse(ErrorClass::kUsage, path.file, "the file has several sections: " + shown(join(sections)),
             str("name one, as in --config ", path.file, ":", shown(sections.front())));
    }
    return sections.size() == 1 && root.size() == 1 ? root[sections.front()] : root;
  }
  if (sections.empty()) {
    refuse(ErrorClass::kUsage, path.file,
           str("there is no section '", shown(path.section), "'; the file has no sections"));
  }
  const auto found = root[path.section];
  if (!found.IsDefined() || !found.IsMap()) {
    refuse(ErrorClass::kUsage, path.file,
           str("there is no section '", shown(path.section), "'; it has ", shown(join(sections))),
           str("did you mean '", shown(nearest_word(path.section, sections)), "'?"));
  }
  return found;
}

}  // namespace

Source parse_command_line(const OptionTable& table, const std::vector<std::string>& words) {
  const auto description = describe(table);
  const auto parsed = parse(table, description, with_canonical_names(words));
  Source source;
  for (const po::option& option : parsed.options) {
    if (option.string_key.empty()) {
      const std::string& stray = option.value.empty() ? std::string() : option.value.front();
      refuse(str("stray word '", shown(stray), "'"),
             stray.starts_with('-') ? "options begin with two dashes" : "options are given as --name value");
    }
    source.push_back(entry_of(table, option));
  }
  return source;
}

Source parse_environment(const std::vector<std::string>& environment) {
  Source source;
  for (const std::string& variable : environment) {
    const size_t cut = variable.find('=');
    if (cut == std::string::npos || !variable.starts_with(kPrefix) || variable.starts_with(kTestPrefix)) {
      continue;
    }
    std::string name = variable.substr(kPrefix.size(), cut - kPrefix.size());
    std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
    source.push_back(
        {name, variable.substr(cut + 1), Place::kEnvironment, "environment " + shown(variable.substr(0, cut))});
  }
  std::sort(source.begin(), source.end(), [](const Entry& a, const Entry& b) { return a.name < b.name; });
  return source;
}

std::vector<std::string> process_environment() {
  std::vector<std::string> out;
  for (char** variable = environ; variable != nullptr && *variable != nullptr; ++variable) {
    out.emplace_back(*variable);
  }
  return out;
}

ConfigPath split_config_path(const std::string& text) {
  for (const char* ending : {".yaml:", ".yml:"}) {
    if (const size_t at = text.rfind(ending); at != std::string::npos) {
      const size_t cut = text.find(':', at);
      return {text.substr(0, cut), text.substr(cut + 1)};
    }
  }
  const bool is_yaml = text.ends_with(".yaml") || text.ends_with(".yml");
  const size_t cut = text.rfind(':');
  if (is_yaml || cut == std::string::npos || text.find('/', cut) != std::string::npos) {
    return {text, ""};
  }
  return {text.substr(0, cut), text.substr(cut + 1)};
}

std::vector<Source> parse_yaml(const ConfigPath& path, const std::string& content) {
  const YAML::Node root = load(path.file, content);
  if (!root.IsMap()) {
    refuse(ErrorClass::kBadData, path.file, "the file holds no keys",
           "a configuration is a list of 'key: value' lines");
  }
  check_keys(path.file, root);
  Sources sources(path.file);
  try {
    sources.add_map(chosen_map(path, root), 0);
  } catch (const YAML::Exception& error) {
    refuse(ErrorClass::kBadData, place_of(path.file, error.mark), error.msg);
  }
  return sources.take();
}

}  // namespace vit_hybrid::options
