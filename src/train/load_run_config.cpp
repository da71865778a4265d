// Loading of a RunConfig: merging, presets, derived values.
#include "src/train/load_run_config.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "src/base/regular_file.h"
#include "src/base/text.h"
#include "src/train/idle_options.h"
#include "src/train/options/sources.h"

namespace vit_hybrid::train {

namespace {

using options::Entry;
using options::OptionTable;
using options::Settings;
using options::Source;

// Takes the --config entries out of the command line and into the request.
Source take_config_files(const OptionTable& table, Source source) {
  Source rest;
  for (Entry& entry : source) {
    if (options::canonical_name(entry.name) == "config") {
      table.find("config")->value.parse(entry.text);
    } else {
      rest.push_back(std::move(entry));
    }
  }
  return rest;
}

bool names_data(const OptionTable& table, const Source& source) {
  return std::any_of(source.begin(), source.end(), [&](const Entry& entry) {
    const options::Option* option = table.find(entry.name);
    return option != nullptr && (option->name == "data" || option->name == "train-data");
  });
}

void add_files(const RunRequest& request, const ReadFile& read_file, Settings& settings) {
  for (const std::string& text : request.config_files) {
    const auto path = options::split_config_path(text);
    for (const Source& source : options::parse_yaml(path, read_file(path.file))) {
      settings.add(source);
    }
  }
}

// Section or file name of the last configuration.
std::string name_of(const std::string& config_file) {
  const auto path = options::split_config_path(config_file);
  return path.section.empty() ? std::filesystem::path(path.file).stem().string() : path.section;
}

void apply_preset(RunConfig& config, const Settings& settings, const OptionTable& table) {
  const Entry* entry = settings.find("preset");
  if (entry == nullptr || !table.find("preset")->value.parse(entry->text) || config.preset.empty()) {
    return;  // apply_all() says what is wrong with it
  }
  config.model = model::preset(config.preset);
  for (const std::string& name : table.find("preset")->forgets) {
    config.origin[name] = "preset " + config.preset;
  }
}

// Values that follow another one which was given, where they themselves were not.
void derive(RunConfig& config, const Settings& settings) {
  model::VitOptions& model = config.model;
  const auto follows = [&](const char* name, const char* other, const char* origin) {
    const bool does = settings.find(name) == nullptr && settings.find(other) != nullptr;
    if (does) {
      config.origin[name] = origin;
    }
    return does;
  };
  if (follows("mlp-hidden", "embed-dim", "4 x embed-dim")) {
    model.mlp_hidden = 4 * model.embed_dim;
  }
  if (follows("out-channels", "in-channels", "in-channels")) {
    model.out_channels = model.in_channels;
  }
  if (follows("attention-dropout", "dropout", "dropout")) {
    model.attention_dropout = model.dropout;
  }
  if (follows("steps", "epochs", "epochs is given")) {
    config.schedule.steps = 0;
  }
}

void note_origins(RunConfig& config, const OptionTable& table, const Settings& settings) {
  for (const options::Option& option : table.options()) {
    if (const Entry* entry = settings.find(option.name)) {
      config.origin[option.name] = entry->origin;
    }
  }
}

void name_run(LoadedConfig& loaded) {
  if (!loaded.config.name.empty()) {
    return;
  }
  if (!loaded.request.config_files.empty()) {
    loaded.config.name = name_of(loaded.request.config_files.back());
  } else if (loaded.config.is_builtin_default) {
    loaded.config.name = "builtin";
  }
}

}  // namespace

std::string read_local_file(const std::string& path) {
  try {
    return read_regular_file(path, options::kMostYamlBytes);
  } catch (const Error& error) {
    if (error.error_class() != ErrorClass::kMissingInput) throw;
    throw Error(error.error_class(), error.message(), "configurations are given as --config FILE[:SECTION]");
  }
}

LoadedConfig load_run_config(const std::vector<std::string>& words, const std::vector<std::string>& environment,
                             const ReadFile& read_file) {
  LoadedConfig loaded;
  RunConfig& config = loaded.config;
  const OptionTable table = run_option_table(config, loaded.request);
  const Source command_line = take_config_files(table, options::parse_command_line(table, words));
  const Source variables = options::parse_environment(environment);
  Settings settings(table);
  config.is_builtin_default =
      loaded.request.config_files.empty() && !names_data(table, command_line) && !names_data(table, variables);
  if (config.is_builtin_default) {
    settings.add(builtin_default());
  }
  add_files(loaded.request, read_file, settings);
  settings.add(variables);
  settings.add(command_line);
  apply_preset(config, settings, table);
  settings.apply_all();
  note_origins(config, table, settings);
  derive(config, settings);
  name_run(loaded);
  config.unused_keys = settings.unused_keys();
  loaded.remarks = settings.remarks();
  loaded.problems = settings.problems();
  loaded.misread_options = settings.misread_options();
  return loaded;
}

std::vector<std::string> all_problems(const LoadedConfig& loaded, int world_size) {
  std::vector<std::string> out = loaded.problems;
  for (auto& problem : problems(loaded.config, world_size)) {
    const auto& misread = loaded.misread_options;
    // A value that could not be read is its default here; what follows from that is nobody's fault.
    const bool follows = std::any_of(misread.begin(), misread.end(), [&](const std::string& name) {
      return problem.find("--" + name) != std::string::npos ||
             problem.find(options::yaml_key(name)) != std::string::npos;
    });
    if (!follows) {
      out.push_back(std::move(problem));
    }
  }
  return out;
}

std::vector<std::string> all_remarks(const LoadedConfig& loaded) {
  std::vector<std::string> out = loaded.remarks;
  const RunConfig& config = loaded.config;
  if (!config.unused_keys.empty()) {
    out.push_back("keys without a meaning here, unused: " + join(config.unused_keys));
  }
  for (std::string& remark : idle_options(config)) {
    out.push_back(std::move(remark));
  }
  return out;
}

}  // namespace vit_hybrid::train
