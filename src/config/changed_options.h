// changed_options(): in what a resumed training differs from the one before, though it may.
#pragma once

#include <string>
#include <vector>

#include "src/config/run_config.h"

namespace vit_hybrid::train {

/// The options that decide what is learned (batch, augmentation, optimizer, schedule, precision; neither layout nor
/// paths) whose values differ between `config` and `stored`, the text of the earlier run's configuration
/// (config_text()): "lr 0.001 (5e-04)", now (before). Options that `stored` does not have are passed over; the rule
/// that earlier programs called cosine, with a warm-up, counts as cosine-reference. Pure.
std::vector<std::string> changed_options(const std::string& stored, const RunConfig& config);

}  // namespace vit_hybrid::train
