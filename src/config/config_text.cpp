// The text of a RunConfig as YAML.
#include <algorithm>
#include <cctype>
#include <iterator>
#include <string_view>

#include "src/base/utf8.h"
#include "src/config/load_run_config.h"

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
  std::string out;
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
    }
    out += c;
  }
  return "\"" + shown(out, std::string::npos) + "\"";  // its escapes are YAML's
}

// Another run of this configuration has another folder and starts anew. Of the two ways to give the batch one is said:
// the global one, which decides what is learned, as soon as it is known.
bool is_left_out(const std::string& name, const RunConfig& config) {
  constexpr std::string_view kOfThisRun[] = {"run-dir", "checkpoint-dir", "resume", "load"};
  const char* const same_batch = config.parallel.dp > 0 ? "local-batch-size" : "global-batch-size";
  return std::find(std::begin(kOfThisRun), std::end(kOfThisRun), name) != std::end(kOfThisRun) ||
         (config.local_batch_size > 0 && name == same_batch);
}

std::string line_of(const options::Option& option, const RunConfig& config) {
  const std::string prefix = is_left_out(option.name, config) ? "# " : "";
  std::string line = prefix + options::yaml_key(option.name) + ": " + quoted(option.value.print());
  const auto origin = config.origin.find(option.name);
  if (origin == config.origin.end()) {
    return line + "\n";
  }
  line.resize(std::max(line.size() + 2, kCommentColumn), ' ');
  return line + "# " + shown(origin->second, std::string::npos) + "\n";
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
    out += line_of(option, config);
  }
  return out;
}

}  // namespace vit_hybrid::train
