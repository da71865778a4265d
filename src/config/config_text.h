// The resolved configuration as YAML, a stored one read back, and the options that have changed since.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "src/config/run_config.h"

namespace vit_hybrid::train {

/// The configuration as YAML that --config accepts, in the groups of the table, with the origin of each value that is
/// not a default behind it.
std::string config_text(const RunConfig& config);

/// The values in `config`, the text of a run's configuration (config_text()), by the option's key in YAML; none of an
/// empty text. Pure.
std::map<std::string, std::string> stored_options(const std::string& config);

/// The options that decide what is learned (batch, augmentation, optimizer, schedule, precision; neither layout nor
/// paths) whose values differ between `config` and `stored`, the text of the earlier run's configuration
/// (config_text()): "lr 0.001 (5e-04)", now (before). Options that `stored` does not have are passed over; the rule
/// that earlier programs called cosine, with a warm-up, counts as cosine-reference. Pure.
std::vector<std::string> changed_options(const std::string& stored, const RunConfig& config);

}  // namespace vit_hybrid::train
