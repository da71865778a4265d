// idle_options(): what was given for this run and changes nothing in it.
#pragma once

#include <string>
#include <vector>

#include "src/config/run_config.h"

namespace vit_hybrid::train {

/// A line for each option of the command line and the environment that has no effect beside the others: "--order has no
/// effect here: it orders two or more of --dp, --tp and --pp above 1". Configurations in files are recipes for many
/// runs and are not asked. `config` is resolved. Pure.
std::vector<std::string> idle_options(const RunConfig& config);

}  // namespace vit_hybrid::train
