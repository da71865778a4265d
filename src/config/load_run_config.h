// Loading of the configuration from all of its sources, what is wrong with it, and what is to be known of it.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "parallel/comm/mpi/mpi_group.h"
#include "src/config/run_config.h"
#include "src/config/run_options.h"

namespace vit_hybrid::train {

/// Gives the content of a file, the same on every rank; throws Error(kMissingInput) or Error(kIo).
using ReadFile = std::function<std::string(const std::string& path)>;

/// Reads a file of this machine as read_regular_file() does, up to options::kMostYamlBytes.
std::string read_local_file(const std::string& path);
/// The same on rank 0 for all ranks. Collective over the world.
std::string read_for_all(const comm::MpiGroup& world, const std::string& path);

/// Configuration, and what is wrong with it so far.
struct LoadedConfig {
  RunConfig config;
  RunRequest request;
  std::vector<std::string> problems;         ///< of single values, each with origin and what is allowed
  std::vector<std::string> remarks;          ///< of the sources, though nothing is wrong with them
  std::vector<std::string> misread_options;  ///< names of the options that the problems are about
  std::set<std::string> given;               ///< options that a file, the environment or the command line gives
};

/// Merges defaults, presets, the built-in default, the files of --config, environment ("NAME=value" each) and the words
/// of the command line; not resolved yet. Errors in the form of a source (not YAML, stray words) are thrown.
LoadedConfig load_run_config(const std::vector<std::string>& words, const std::vector<std::string>& environment,
                             const ReadFile& read_file);

/// All problems of a loaded configuration: those of single values, then what does not go together among the others.
std::vector<std::string> all_problems(const LoadedConfig& loaded, int world_size);

/// What a user should know of a loaded and resolved configuration, a line each: options given twice on the command
/// line, keys without meaning, options of the command line and the environment without effect beside the others
/// ("--order has no effect here: ..."; files are recipes for many runs), and what of the model the data decide.
std::vector<std::string> all_remarks(const LoadedConfig& loaded);

}  // namespace vit_hybrid::train
