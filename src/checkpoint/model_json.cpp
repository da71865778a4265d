// The model options through the table that also reads them from the command line: no second list of them.
#include "src/checkpoint/model_json.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "src/base/error.h"
#include "src/base/text.h"
#include "src/config/run_option_groups.h"

namespace vit_hybrid::train {

namespace {

// The preset's name defines nothing that the other options do not.
bool is_model_option(const options::Option& option) {
  return option.name != "preset";
}

std::vector<options::Option> model_options(RunConfig& config) {
  options::OptionTable table;
  add_model(table, config);
  std::vector<options::Option> out;
  std::copy_if(table.options().begin(), table.options().end(), std::back_inserter(out), is_model_option);
  return out;
}

nlohmann::json parse(const std::string& json) {
  nlohmann::json object = nlohmann::json::parse(json, nullptr, /*allow_exceptions=*/false);
  if (!object.is_object()) {
    throw Error(ErrorClass::kBadData, str("the model options '", json.substr(0, 60), "' are no JSON object"),
                "the file was not written by this program, or is damaged");
  }
  return object;
}

std::string text_of(const nlohmann::json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
}

}  // namespace

std::string model_json(const model::VitOptions& options) {
  RunConfig config;
  config.model = options;
  nlohmann::ordered_json object;
  for (const options::Option& option : model_options(config)) {
    const std::string text = option.value.print();
    const bool is_number = option.value.kind == options::Kind::kInteger || option.value.kind == options::Kind::kNumber;
    object[option.name] = is_number ? nlohmann::ordered_json::parse(text) : nlohmann::ordered_json(text);
  }
  return object.dump();
}

model::VitOptions model_from_json(const std::string& json) {
  const nlohmann::json object = parse(json);
  RunConfig config;
  for (const options::Option& option : model_options(config)) {
    const auto found = object.find(option.name);
    if (found == object.end() || !option.value.parse(text_of(*found))) {
      throw Error(ErrorClass::kBadData,
                  str("the model options '", json.substr(0, 60), "...' have ",
                      found == object.end() ? "no " : "a wrong ", option.name),
                  "the file was not written by this program, or is damaged");
    }
  }
  return config.model;
}

std::vector<ModelDifference> model_differences(const std::string& first_json, const std::string& second_json) {
  RunConfig first;
  first.model = model_from_json(first_json);
  RunConfig second;
  second.model = model_from_json(second_json);
  const auto first_options = model_options(first);
  const auto second_options = model_options(second);
  std::vector<ModelDifference> differences;
  for (size_t i = 0; i < first_options.size(); ++i) {
    ModelDifference difference{first_options[i].name, first_options[i].value.print(), second_options[i].value.print()};
    if (difference.first != difference.second) {
      differences.push_back(std::move(difference));
    }
  }
  return differences;
}

bool is_training_only(const std::string& model_option) {
  constexpr std::array<std::string_view, 4> kTrainingOnly = {"dropout", "attention-dropout", "drop-path",
                                                             "label-smoothing"};
  return std::find(kTrainingOnly.begin(), kTrainingOnly.end(), model_option) != kTrainingOnly.end();
}

std::vector<std::string> model_differences(const std::string& checkpoint_json, const model::VitOptions& wanted) {
  std::vector<std::string> lines;
  for (const ModelDifference& difference : model_differences(checkpoint_json, model_json(wanted))) {
    lines.push_back(
        str("--", difference.option, " is ", difference.second, ", the checkpoint's is ", difference.first));
  }
  return lines;
}

}  // namespace vit_hybrid::train
