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

/// An option that two models have with other values.
struct ModelDifference {
  std::string option;  ///< "embed-dim"
  std::string first;
  std::string second;
};

/// The options in which two texts of model_json() differ, in the order of the table.
std::vector<ModelDifference> model_differences(const std::string& first_json, const std::string& second_json);

/// Whether an option says how a model is trained, not what it computes: dropout rates and label smoothing.
bool is_training_only(const std::string& model_option);

/// A line for each option in which `wanted` differs from the checkpoint's model: "--depth is 8, the checkpoint's is 6".
std::vector<std::string> model_differences(const std::string& checkpoint_json, const model::VitOptions& wanted);

}  // namespace vit_hybrid::train
