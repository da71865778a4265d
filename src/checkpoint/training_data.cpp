// TrainingData: comparison, checks, and JSON.
#include "src/checkpoint/training_data.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "data/datasets/class_names.h"
#include "src/base/error.h"
#include "src/base/text.h"
#include "src/base/utf8.h"

namespace vit_hybrid::train {

namespace {

using SortedJson = nlohmann::json;

constexpr double kSameStatistic = 1e-5;  // in standard deviations

// "3 (t850)"
std::string channel_text(const TrainingData& data, size_t channel) {
  const auto names = data::split_names(data.channels);
  return channel < names.size() ? str(channel, " (", shown(names[channel]), ")") : str(channel);
}

// Calls `field(name, member)` for what other programs' files keep.
template <class Data, class Field>
void for_each_kept_field(Data& data, const Field& field) {
  field("channels", data.channels);
  field("class_names", data.class_names);
  field("means", data.means);
  field("stds", data.stds);
  field("latitudes", data.grid.latitudes);
  field("longitudes", data.grid.longitudes);
}

}  // namespace

std::optional<data::Normalization> normalization_of(const TrainingData& data) {
  return data.means.empty() ? std::nullopt : std::optional(data::Normalization{data.means, data.stds});
}

std::string channels_difference(const TrainingData& trained, const std::string& given) {
  if (trained.channels.empty() || given.empty() || trained.channels == given) {
    return {};
  }
  return str("the data have the channels ", shown(given), ", the model was trained on ", shown(trained.channels));
}

std::string classes_difference(const TrainingData& trained, const std::string& given) {
  return data::class_difference(given, "the data", trained.class_names, "the checkpoint");
}

std::string grid_difference(const TrainingData& trained, const data::Grid& given) {
  if (data::same_grid(trained.grid, given)) {
    return {};
  }
  return str("the data have ", data::grid_text(given), ", the model was trained on ", data::grid_text(trained.grid));
}

std::string doubt_of_rows(const TrainingData& trained, const data::Grid& given) {
  const std::vector<double>& rows = given.latitudes;
  if (!trained.grid.latitudes.empty() || rows.empty() || rows.front() >= rows.back()) {
    return {};
  }
  return str(
      "the data's rows run from south to north (latitudes ", rows.front(), " to ", rows.back(),
      "), and the checkpoint does not know which way those of its training ran: if from the north, the model now "
      "sees the globe upside down");
}

std::string statistics_difference(const TrainingData& trained, const TrainingData& given) {
  if (trained.means.empty() || given.means.empty()) {
    return {};
  }
  if (trained.means.size() != given.means.size()) {
    return str("the data have statistics of ", given.means.size(), " channels, the model was trained with those of ",
               trained.means.size());
  }
  for (size_t c = 0; c < trained.means.size(); ++c) {
    const double moved = std::abs(trained.means[c] - given.means[c]) + std::abs(trained.stds[c] - given.stds[c]);
    if (moved > kSameStatistic * trained.stds[c]) {
      return str("channel ", channel_text(trained, c), " has the mean ", given.means[c], " and the deviation ",
                 given.stds[c], ", the model was trained with ", trained.means[c], " and ", trained.stds[c]);
    }
  }
  return {};
}

void check_training_data(const TrainingData& data, const std::string& where) {
  const auto is_finite = [](double value) { return std::isfinite(value); };
  if (data.means.size() != data.stds.size() || !std::all_of(data.means.begin(), data.means.end(), is_finite) ||
      !std::all_of(data.stds.begin(), data.stds.end(), [](double std) { return std::isfinite(std) && std > 0.0; })) {
    throw Error(
        ErrorClass::kBadData,
        str(where, " has ", data.means.size(), " means and ", data.stds.size(),
            " standard deviations that normalise nothing: ", shown(join(data.means)), "; ", shown(join(data.stds))),
        "needed are a finite mean and a finite deviation above 0 of each channel");
  }
  data::check_grid(data.grid, where);
}

std::string training_data_json(const TrainingData& data) {
  SortedJson json = SortedJson::object();
  for_each_kept_field(data, [&](const char* name, const auto& value) {
    if (!value.empty()) {
      json[name] = value;
    }
  });
  // Names may be of bytes that are no UTF-8.
  return json.dump(-1, ' ', false, SortedJson::error_handler_t::replace);
}

TrainingData training_data_of(const std::string& json, const std::string& where) {
  TrainingData data;
  try {
    const SortedJson in = SortedJson::parse(json);
    for_each_kept_field(data, [&](const char* name, auto& value) {
      if (in.contains(name)) {
        in.at(name).get_to(value);
      }
    });
  } catch (const SortedJson::exception& error) {
    throw Error(ErrorClass::kBadData, str(where, " describes the data of its training wrongly: ", error.what()),
                "another program has written it: take the entry out of the file");
  }
  check_training_data(data, where);
  return data;
}

}  // namespace vit_hybrid::train
