// DataSource: the datasets of a run, and what the model and the report need to know of them.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "data/datasets/dataset.h"
#include "data/datasets/field_roles.h"
#include "data/datasets/normalization.h"
#include "data/datasets/weather_dataset.h"
#include "parallel/comm/mpi/mpi_group.h"
#include "src/checkpoint/format.h"
#include "src/config/run_config.h"

namespace vit_hybrid::train {

/// What a model that was trained on `trained` predicts of data with these channels and this normalization of rows.
/// Error(kBadData) where `trained` has increments of another number of channels. Pure.
data::IncrementTarget increments_of(const TrainingData& trained, const data::Normalization& rows,
                                    const data::SampleChannels& channels);

/// The time means of the configuration (--time-means, else time_means.npy of --stats where that exists), normalised as
/// the fields of `shape` [C, H, W] are, of the channels of these names (data::statistics_rows()); an undefined tensor
/// where there are none. Collective over `group`; errors are agreed: Error(kMissingInput), Error(kBadData).
at::Tensor read_climatology(const DataConfig& config, const comm::MpiGroup& group, const std::vector<int64_t>& shape,
                            const data::Normalization& normalization, const std::string& channels);
/// Those of the predicted channels of a WeatherDataset, or of WeatherTimes.
template <class Fields>
at::Tensor climatology_of(const DataConfig& config, const comm::MpiGroup& group, const Fields& fields) {
  const Range predicted = fields.channels().predicted();
  return read_climatology(config, group, fields.target_shape(), data::part_of(fields.normalization(), predicted),
                          data::part_of_names(fields.given_channels(), predicted));
}

/// How the weather of a folder is opened, as far as it is of these dates (empty: all), for a model that was trained on
/// `trained`: with the states before them that its history takes, and as far behind them as the truths of `steps`
/// applications of it, or of so many hours.
data::WeatherOptions weather_options(const DataConfig& config, const TrainingData& trained, const std::string& folder,
                                     const std::string& dates, int64_t steps = 0, double hours = 0.0);

/// What checkpoints say of the data of a WeatherDataset, or of WeatherTimes.
/// `roles` as roles_text() has them.
template <class Fields>
TrainingData description_of_fields(const Fields& fields, const std::string& roles) {
  return {.channels = fields.given_channels(),
          .units = fields.given_units(),
          .means = fields.normalization().mean,
          .stds = fields.normalization().std,
          .grid = fields.grid(),
          .lead = fields.lead(),
          .roles = roles};
}

struct DataSource {
  std::unique_ptr<data::Dataset> train;
  std::unique_ptr<data::Dataset> valid;  ///< null: no validation
  int64_t num_train_samples = 0;         ///< the first of `train` that are used (--limit-nsamples)
  int64_t num_valid_samples = 0;         ///< and of `valid` (--limit-nsamples-val)
  at::Tensor climatology;                ///< [C, H, W] normalised time means, or undefined: anomalies against 0
  data::IncrementTarget increments;      ///< what the model predicts, if not states
  TrainingData described;                ///< what checkpoints say of them; of training and validation what either has
  bool has_labels = true;                ///< false: images whose targets say nothing
  std::string text;                      ///< one line that says what the data are and how they are read
};

/// Opens (or makes, from `seed`) the data sets and checks that the model fits them. Collective over `world`, which
/// outlives them; errors are agreed: Error(kMissingInput), Error(kBadData), Error(kUsage).
DataSource open_data(const model::VitOptions& model, const DataConfig& config, uint64_t seed,
                     const comm::MpiGroup& world);

/// Whether images must have labels.
enum class LabelUse { kNeeded, kOptional };

/// Opens the validation data alone, from HDF5 files, for a model that was trained on `trained`: `train` is null. Where
/// the configuration names no statistics they are the training's; classes are matched by name. Collective and with
/// errors as open_data().
DataSource open_valid_data(const model::VitOptions& model, const DataConfig& config, const TrainingData& trained,
                           const comm::MpiGroup& world, LabelUse labels = LabelUse::kNeeded);

}  // namespace vit_hybrid::train
