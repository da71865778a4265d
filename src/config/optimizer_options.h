// The optimizer, and the types of numbers, as the configuration of a run has it.
#pragma once

#include <string>
#include <vector>

#include "parallel/zero/optimizer_options.h"
#include "parallel/zero/precision_policy.h"
#include "src/config/run_config.h"

namespace vit_hybrid::train {

/// The types that --precision, --grad-dtype and --reduce-dtype stand for.
zero::PrecisionPolicy precision_policy(const RunConfig& config);

/// What the update rules take.
zero::OptimizerOptions optimizer_options(const OptimizerConfig& config);

/// A sentence for each option that the chosen optimizer does not have and that is not at its default (all options are
/// written in every resolved configuration), and for what does not go together.
std::vector<std::string> optimizer_problems(const OptimizerConfig& config);

}  // namespace vit_hybrid::train
