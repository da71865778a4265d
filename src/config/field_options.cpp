// Lists of channels as options, the roles that they play, and lists of their weights.
#include "src/config/field_options.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <vector>

#include "data/datasets/field_catalogue.h"
#include "data/datasets/forcings.h"
#include "data/datasets/year_files.h"
#include "src/base/error.h"
#include "src/base/json.h"
#include "src/base/text.h"
#include "src/base/utf8.h"
#include "src/config/run_options.h"

namespace vit_hybrid::train {

namespace {

// Of names and of variables with levels.
options::Value channel_list(std::string& channels) {
  options::Value names = options::text(channels, "names");
  const Json level = {{"type", {"string", "number"}}};
  const Json levels = {{"type", "object"},
                       {"additionalProperties", {{"anyOf", {level, {{"type", "array"}, {"items", level}}}}}}};
  names.schema = {
      {"anyOf", {{{"type", "string"}}, {{"type", "array"}, {"items", {{"anyOf", {{{"type", "string"}}, levels}}}}}}}};
  return names;
}

constexpr int64_t kMostHistory = 64;

// Whether a list of forcings has the zenith angle's cosine, by any of its names.
bool has_zenith(const std::string& forcings) {
  const std::vector<std::string> names = data::names_in(forcings);
  return std::any_of(names.begin(), names.end(),
                     [](const std::string& name) { return data::forcing_named(name) == data::Forcing::kCosZenith; });
}

}  // namespace

void add_channels(options::OptionTable& table, std::string& channels, std::string& variables) {
  table.add({.name = "channels",
             .value = channel_list(channels),
             .help =
                 "Channels of fields by name, with commas between them: variables (u10, t2m), levels of them (z500, "
                 "or z:500:850; in YAML also {z: [500, 850]}), or names of a dataset's channels; all of the dataset "
                 "where not given.",
             .names_elsewhere = {"channel-names"}});
  table.add({.name = "variables",
             .value = options::text(variables, "pairs"),
             .help = "What the data call variables of channels, where that is none of ERA5's names: z=phi,t=temp."});
}

void add_lead(options::OptionTable& table, data::Lead& lead, const std::string& help_of_rows) {
  table.add({.name = "dt",
             .value = options::integer(lead.rows, from_one(1 << 20)),
             .help = help_of_rows,
             .unit = "rows",
             .forgets = {"dt-hours"}});
  options::NumberRange hours;
  hours.least = 0.0;
  hours.word = "auto";
  table.add({.name = "dt-hours",
             .value = options::number(lead.hours, hours),
             .help = "The same in hours, a multiple of what the rows of the data lie apart by their time axis, and in "
                     "place of dt; auto: as dt says.",
             .unit = "hours"});
}

void add_roles(options::OptionTable& table, DataConfig& data) {
  table.add({.name = "history",
             .value = options::integer(data.roles.history, from_one(kMostHistory)),
             .help = "States that the model takes: the present one and those before it, one lead (dt) apart.",
             .unit = "states",
             .shifted_names = {{"n-history", {0, kMostHistory - 1}, 1}},
             .names_elsewhere = {"num-history", "multistep-input"}});
  table.add({.name = "forcings",
             .value = channel_list(data.roles.forcings),
             .help = "What the model takes and does not predict: fields computed from time and place (" +
                     join(data::forcing_names()) +
                     "), and channels of the data, by name as in channels, which must then name what is predicted. "
                     "Forecasts take both at each lead time.",
             .adding_flags = {{"add-zenith", data::forcing_name(data::Forcing::kCosZenith), &has_zenith}},
             .names_elsewhere = {"forcing"}});
  table.add({.name = "diagnostics",
             .value = channel_list(data.roles.diagnostics),
             .help = "Channels of the data that the model predicts and does not take, such as tp; channels must then "
                     "name what it does both with.",
             .names_elsewhere = {"diagnostic"}});
  table.add({.name = "static",
             .value = channel_list(data.roles.statics),
             .help = "Fields that do not change, for the model to take: variables such as orography (standardised) and "
                     "land_sea_mask (as land and sea), and cos_latitude, sin_latitude, cos_longitude, sin_longitude.",
             .names_elsewhere = {"add-orography", "add-landmask", "add-grid"}});
  table.add({.name = "static-data",
             .value = options::text(data.roles.static_data, "path"),
             .help = "File or Zarr store with the variables of static; the first one of the data where not given."});
  table.add({.name = "target",
             .value = options::choice(data.target, {"state", "increment"}),
             .help = "What the model predicts: the next state, or what is to be added to the present one, in the mean "
                     "and deviation of increments, which 'data stats --increments' writes to stats."});
}

void add_loss_weights(options::OptionTable& table, LossConfig& loss) {
  table.add({.name = "loss-latitude-weights",
             .value = options::flag(loss.latitude_weights),
             .help = "Let each value count in a forecast's loss by the area that it stands for: by cos(latitude), with "
                     "mean 1 over the rows, as in the scores."});
  table.add({.name = "loss-channel-weights",
             .value = options::text(loss.channel_weights, "increments|FILE.npy|name=weight,..."),
             .help = "What each channel counts in a forecast's loss: increments, by the inverse variance of its change "
                     "in normalised units, (global_stds / time_diff_stds)^2 of the folder stats; a file with a number "
                     "for each channel of the output, in their order; or numbers by name, 1 for the others. All are "
                     "scaled to mean 1 over the channels, so that losses stay comparable; not given: alike."});
}

bool is_weights_file(const std::string& channel_weights) {
  return channel_weights.ends_with(".npy");
}

ChannelWeights parse_channel_weights(const std::string& text) {
  const auto refuse = [](const std::string& what) {
    throw Error(ErrorClass::kUsage, what,
                "allowed: increments, the name of a .npy file, or name=weight,name=weight,... with weights from 0");
  };
  ChannelWeights weights;
  for (const std::string& part : data::split_channels(text)) {
    const size_t equals = part.rfind('=');
    if (equals == std::string::npos || equals == 0 || equals + 1 == part.size()) {
      refuse(str("'", shown(part), "' is no weight of a channel"));
    }
    const std::string name = part.substr(0, equals), number = part.substr(equals + 1);
    double weight = 0.0;
    const char* const end = number.data() + number.size();
    const auto [read_end, problem] = std::from_chars(number.data(), end, weight);
    if (problem != std::errc() || read_end != end || !std::isfinite(weight) || weight < 0.0) {
      refuse(str("the weight of '", shown(name), "' is '", shown(number), "', which is no number from 0"));
    }
    const bool is_double = std::any_of(weights.begin(), weights.end(), [&](const auto& other) {
      return data::canonical_channel(other.first) == data::canonical_channel(name);
    });
    if (is_double) {
      refuse(str("'", shown(name), "' has two weights"));
    }
    weights.emplace_back(name, weight);
  }
  return weights;
}

}  // namespace vit_hybrid::train
