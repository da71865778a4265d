// stored_options(): the configuration that a checkpoint carries, as texts.
#pragma once

#include <map>
#include <string>

namespace vit_hybrid::train {

/// The values in `config`, the text of a run's configuration (config_text()), by the option's key in YAML; none of an
/// empty text. Pure.
std::map<std::string, std::string> stored_options(const std::string& config);

}  // namespace vit_hybrid::train
