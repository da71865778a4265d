// What would make a training fit into memory that it did not fit into.
#pragma once

#include <string>

#include "src/base/memory_tracker.h"
#include "src/config/run_config.h"

namespace vit_hybrid::train {

/// The options that make a run of `config` (resolved) hold less, those for what holds most first; only such as are not
/// used yet. Pure.
std::string memory_advice(const RunConfig& config, const MemoryFailure& failure);

}  // namespace vit_hybrid::train
