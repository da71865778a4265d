// YAML files as sources of settings: sections, merge keys, and the refusal of what would be silently lost.
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <map>
#include <sstream>
#include <utility>

#include "src/base/error.h"
#include "src/base/nearest_word.h"
#include "src/base/text.h"
#include "src/base/utf8.h"
#include "src/config/sources.h"

namespace vit_hybrid::options {

namespace {

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
    if (!value.IsSequence()) {
      refuse(ErrorClass::kUsage, place_of(file_, value.Mark()),
             str("the value of '", shown(key), "' is a map; it must be one value"),
             "keys stand side by side, not in groups");
    }
    std::vector<std::string> parts;
    for (const auto& part : value) {
      if (!part.IsScalar()) {
        refuse(ErrorClass::kUsage, place_of(file_, part.Mark()),
               str("the list of '", shown(key), "' must hold plain values"));
      }
      count(part);
      parts.push_back(part.Scalar());
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
