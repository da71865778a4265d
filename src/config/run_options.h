// The options of a run: the table that binds names, ranges and sentences to the fields of a RunConfig.
#pragma once

#include <string>
#include <vector>

#include "src/config/option_table.h"
#include "src/config/run_config.h"
#include "src/config/settings.h"

namespace vit_hybrid::train {

/// What the command line asks for besides the values of the run.
struct RunRequest {
  std::vector<std::string> config_files;  ///< FILE[:SECTION], in the order given
  bool print_config = false;
  bool print_schedule = false;
  bool print_lr = false;
  int64_t print_lr_every = 0;  ///< iterations; 0 ('auto')
  bool help = false;
  bool version = false;
};

inline constexpr int64_t kMostCount = int64_t{1} << 48;  ///< of samples or iterations
inline constexpr int64_t kMostRanks = 1 << 20;
inline constexpr int64_t kMostThreads = 4096;

/// 1 to `most`, and a word for 0.
options::IntegerRange from_one(int64_t most, std::string word = {});

/// The table of all options of `vit_hybrid train`, bound to `config` and `request`, which must outlive it.
options::OptionTable run_option_table(RunConfig& config, RunRequest& request);

/// The settings of the built-in default for a task, with which the program runs where neither a configuration nor data
/// is given, and over which others are given where the data are the built-in ones.
options::Source builtin_default(model::Task task);

}  // namespace vit_hybrid::train
