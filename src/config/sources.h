// Where options come from: command line, environment, YAML files.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "src/config/settings.h"

namespace vit_hybrid::options {

/// Parses the words after the program's and command's name: `--name value`, `--name=value`, `--flag`, `--no-flag`,
/// '-' and '_' being the same in a name. Unknown names, missing values, abbreviations and stray words are
/// Error(kUsage).
Source parse_command_line(const OptionTable& table, const std::vector<std::string>& words);

/// Parses the variables VIT_HYBRID_<NAME> of `environment` ("NAME=value" each). VIT_HYBRID_TEST_* are left alone.
Source parse_environment(const std::vector<std::string>& environment);

/// The environment of this process.
std::vector<std::string> process_environment();

/// FILE[:SECTION] of --config.
struct ConfigPath {
  std::string file;
  std::string section;  ///< empty: the whole file
};

/// Splits at the ':' after ".yaml" or ".yml", else at the last ':' of the file's name.
ConfigPath split_config_path(const std::string& text);

/// The longest YAML that is read.
inline constexpr int64_t kMostYamlBytes = int64_t{1} << 20;

/// Parses YAML `content` of path.file: keys at the top, or sections of keys of which path.section is taken (a file with
/// one section needs no name). What merge keys bring (`<<: *base`, and lists of them) comes as sources before the keys
/// beside them. A key given twice, values that are maps, and several documents are refused, with file and line, and so
/// is what is longer than kMostYamlBytes, or becomes much longer by its aliases.
std::vector<Source> parse_yaml(const ConfigPath& path, const std::string& content);

}  // namespace vit_hybrid::options
