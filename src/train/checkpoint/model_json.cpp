// The model options through the table that also reads them from the command line: no second list of them.
#include "src/train/checkpoint/model_json.h"

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>

#include "src/base/error.h"
#include "src/base/text.h"
#include "src/train/run_option_groups.h"

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

std::vector<std::string> model_differences(const std::string& checkpoint_json, const model::VitOptions& wanted) {
  RunConfig stored;
  stored.model = model_from_json(checkpoint_json);
  RunConfig asked;
  asked.model = wanted;
  const auto stored_options = model_options(stored);
  const auto asked_options = model_options(asked);
  std::vector<std::string> lines;
  for (size_t i = 0; i < asked_options.size(); ++i) {
    const std::string mine = asked_options[i].value.print();
    const std::string theirs = stored_options[i].value.print();
    if (mine != theirs) {
      lines.push_back(str("--", asked_options[i].name, " is ", mine, ", the checkpoint's is ", theirs));
    }
  }
  return lines;
}

}  // namespace vit_hybrid::train
