// The optimizer as the configuration of a run has it.
#pragma once

#include <string>
#include <vector>

#include "parallel/zero/optimizer_options.h"
#include "src/train/run_config.h"

namespace vit_hybrid::train {

/// What the update rules take.
zero::OptimizerOptions optimizer_options(const OptimizerConfig& config);

/// A sentence for each option that the chosen optimizer does not have and that is not at its default (all options are
/// written in every resolved configuration), and for what does not go together.
std::vector<std::string> optimizer_problems(const OptimizerConfig& config);

}  // namespace vit_hybrid::train
