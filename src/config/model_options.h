// The options of the model, which trainings take, and who writes a checkpoint for weights from elsewhere.
#pragma once

#include "src/config/option_table.h"
#include "src/config/run_config.h"

namespace vit_hybrid::train {

/// Adds the options of the model, bound to `config`.
void add_model(options::OptionTable& table, RunConfig& config);

}  // namespace vit_hybrid::train
