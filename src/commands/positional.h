// Command lines that name files before, between or after their options.
#pragma once

#include <string>
#include <vector>

#include "src/config/option_table.h"

namespace vit_hybrid::commands {

struct SplitWords {
  std::vector<std::string> files;    ///< words that belong to no option
  std::vector<std::string> options;  ///< options and their values
};

/// A word after an option of `table` that takes a value, and was given without '=', is that value.
SplitWords split_words(const options::OptionTable& table, const std::vector<std::string>& words);

}  // namespace vit_hybrid::commands
