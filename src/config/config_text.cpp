// Lines of YAML, and comparison by option.
#include "src/config/config_text.h"

#include <algorithm>
#include <cctype>
#include <iterator>
#include <string_view>

#include "src/base/text.h"
#include "src/base/utf8.h"
#include "src/config/run_options.h"
#include "src/config/sources.h"

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

constexpr std::string_view kDecisive[] = {"precision",
                                          "global-batch-size",
                                          "loss-scale",
                                          "grad-dtype",
                                          "reduce-dtype",
                                          "deterministic",
                                          "drop-last",
                                          "interpolation",
                                          "mixup",
                                          "optimizer",
                                          "beta1",
                                          "beta2",
                                          "eps",
                                          "momentum",
                                          "nesterov",
                                          "trust-coefficient",
                                          "weight-decay",
                                          "decay-vectors",
                                          "clip-norm",
                                          "lr",
                                          "lr-schedule",
                                          "lr-scaling",
                                          "lr-batch-size",
                                          "warmup",
                                          "min-lr",
                                          "decay-share",
                                          "steps",
                                          "epochs",
                                          "loss-latitude-weights",
                                          "loss-channel-weights"};

// Programs without --min-lr called the reference workload's rule cosine; with no warm-up the two are one.
bool name_old_cosine(std::map<std::string, std::string>& before) {
  const auto schedule = before.find("lr_schedule");
  const auto warmup = before.find("warmup");
  const bool is_old = !before.contains("min_lr") && schedule != before.end() && schedule->second == "cosine" &&
                      warmup != before.end() && warmup->second != "0";
  if (is_old) {
    schedule->second = "cosine-reference";
  }
  return is_old;
}

}  // namespace

std::map<std::string, std::string> stored_options(const std::string& config) {
  std::map<std::string, std::string> texts;
  if (config.empty()) {
    return texts;
  }
  for (const options::Source& source : options::parse_yaml({"the checkpoint's configuration", ""}, config)) {
    for (const options::Entry& entry : source) {
      texts[entry.name] = entry.text;
    }
  }
  return texts;
}

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

std::vector<std::string> changed_options(const std::string& stored, const RunConfig& config) {
  auto before = stored_options(stored);
  const bool has_old_cosine = name_old_cosine(before);
  RunConfig shown = config;  // the table binds to variables, though it only reads them here
  RunRequest request;
  const auto table = run_option_table(shown, request);
  std::vector<std::string> changes;
  for (const std::string_view name : kDecisive) {
    const options::Option& option = *table.find(std::string(name));
    const std::string now = option.value.print();
    const auto old = before.find(options::yaml_key(option.name));
    if (old != before.end() && old->second != now) {
      const char* const remark = has_old_cosine && name == "lr-schedule" ? ", then called cosine" : "";
      changes.push_back(str(name, " ", now, " (", old->second, remark, ")"));
    }
  }
  return changes;
}

}  // namespace vit_hybrid::train
