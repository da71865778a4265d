// The text of a RunConfig as YAML.
#include <algorithm>
#include <cctype>
#include <sstream>

#include "src/train/load_run_config.h"

namespace vit_hybrid::train {

namespace {

constexpr size_t kCommentColumn = 44;

bool is_plain(const std::string& text) {
  const auto is_plain_character = [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '_' || c == '/' || c == '.' || c == '-';
  };
  return !text.empty() && text.front() != '-' && text.front() != '.' &&
         std::all_of(text.begin(), text.end(), is_plain_character);
}

// As YAML reads it back: a plain word, or between double quotes.
std::string quoted(const std::string& text) {
  if (is_plain(text)) {
    return text;
  }
  std::string out = "\"";
  for (const char c : text) {
    switch (c) {
      case '\n':
        out += "\\n";
        break;
      case '\t':
        out += "\\t";
        break;
      case '"':
      case '\\':
        out += '\\';
        [[fallthrough]];
      default:
        out += c;
    }
  }
  return out + "\"";
}

std::string line_of(const options::Option& option, const Origins& origins) {
  // Another run of this configuration has another folder and starts anew.
  const bool is_of_this_run = option.name == "run-dir" || option.name == "checkpoint-dir" || option.name == "resume";
  const std::string prefix = is_of_this_run ? "# " : "";
  std::string line = prefix + options::yaml_key(option.name) + ": " + quoted(option.value.print());
  const auto origin = origins.find(option.name);
  if (origin == origins.end()) {
    return line + "\n";
  }
  line.resize(std::max(line.size() + 2, kCommentColumn), ' ');
  std::string comment = origin->second;
  std::replace(comment.begin(), comment.end(), '\n', ' ');
  return line + "# " + comment + "\n";
}

}  // namespace

std::string config_text(const RunConfig& config) {
  RunConfig shown = config;  // the table binds to variables, though it only reads them here
  RunRequest request;
  const auto table = run_option_table(shown, request);
  std::string out;
  std::string group;
  for (const options::Option& option : table.options()) {
    if (option.scope == options::Scope::kCommandLineOnly) {
      continue;
    }
    if (option.group != group) {
      out += (group.empty() ? "# " : "\n# ") + option.group + "\n";
      group = option.group;
    }
    out += line_of(option, config.origin);
  }
  return out;
}

}  // namespace vit_hybrid::train
