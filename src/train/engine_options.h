// The options of an engine as the configuration of a run has them.
#pragma once

#include "src/train/engine.h"
#include "src/train/run_config.h"

namespace vit_hybrid::train {

/// The types that --precision, --grad-dtype and --reduce-dtype stand for.
zero::PrecisionPolicy precision_policy(const RunConfig& config);

EngineOptions engine_options(const RunConfig& config);

}  // namespace vit_hybrid::train
