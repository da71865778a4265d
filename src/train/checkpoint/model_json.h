// The model options as JSON: what a checkpoint's weights belong to, and how another model differs from it.
#pragma once

#include <string>
#include <vector>

#include "model/vit_options.h"

namespace vit_hybrid::train {

/// One JSON object with the name of every model option ("embed-dim", as on the command line) and its value.
std::string model_json(const model::VitOptions& options);

/// The options that a text of model_json() holds. Error(kBadData) where it is no such text.
model::VitOptions model_from_json(const std::string& json);

/// A line for each option in which `wanted` differs from the checkpoint's model: "--depth is 8, the checkpoint's is 6".
std::vector<std::string> model_differences(const std::string& checkpoint_json, const model::VitOptions& wanted);

}  // namespace vit_hybrid::train
