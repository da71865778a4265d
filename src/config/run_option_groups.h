// The groups of run options that are not in run_options.cpp (model and data beside this file, checkpoints in
// run_config.cpp), and the ranges that all groups share.
#pragma once

#include <string>

#include "src/config/option_table.h"
#include "src/config/run_config.h"

namespace vit_hybrid::train {

inline constexpr int64_t kMostCount = int64_t{1} << 48;  ///< of samples or iterations
inline constexpr int64_t kMostThreads = 4096;

/// 1 to `most`, and a word for 0.
options::IntegerRange from_one(int64_t most, std::string word_for_zero = {});
options::NumberRange at_least_zero(std::string word_for_zero = {});
/// More than 0, and a word for 0.
options::NumberRange positive(std::string word_for_zero = {});
/// [0, 1)
options::NumberRange below_one();
/// (0, 1)
options::NumberRange between_zero_and_one();

void add_model(options::OptionTable& table, RunConfig& config);
void add_data(options::OptionTable& table, RunConfig& config);
void add_checkpoints(options::OptionTable& table, RunConfig& config);

}  // namespace vit_hybrid::train
