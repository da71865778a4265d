// A forecast: the model on its own output, its files and figures.
#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/datasets/weather_dataset.h"
#include "data/hdf5/hdf5_scales.h"
#include "data/hdf5/hdf5_writer.h"
#include "model/losses.h"
#include "parallel/comm/mpi/mpi_group.h"
#include "src/checkpoint/checkpoint_reader.h"
#include "src/checkpoint/format.h"
#include "src/config/run_config.h"
#include "src/infer/climatology.h"
#include "src/infer/forecast_store.h"
#include "src/infer/model_use.h"
#include "src/report/metrics_log.h"
#include "src/report/scores.h"

namespace vit_hybrid::train {

struct ForecastOptions {
  ModelUse use;
  int64_t start = 0;        ///< time to start from, counted over all files
  int64_t steps = 8;        ///< lead times
  std::string climatology;  ///< as LeadOptions::climatology
};

/// The files of a forecast, use.out (of the ending .zarr a store) and the same with the ending .json, and its figures.
class ForecastRecord {
 public:
  /// Opens the data of `config` and checks the options against them and the model: Error(kUsage), Error(kMissingInput),
  /// Error(kBadData). Then refuses files that are there: Error(kCannotCreate). This process is alone in `self`, which
  /// outlives the record, as does `options`. `trained` is what the model of `checkpoint` was trained on: its statistics
  /// count where the configuration names none, its latitudes where the data have none.
  ForecastRecord(const StepConfig& config, const DataConfig& data, const ForecastOptions& options,
                 const std::string& checkpoint, const TrainingData& trained, const comm::MpiGroup& self);

  const at::Tensor& input() const { return input_; }  ///< of the model at the start: [C, H, W], normalised
  /// What the model takes at a lead time that no prediction gives: data::WeatherTimes::forcings().
  at::Tensor forcings(int64_t lead) const { return times_.forcings(place_, lead * times_.lead().rows); }
  /// Of the data's rows.
  const data::Normalization& normalization() const { return times_.normalization(); }
  /// What the data say of themselves.
  TrainingData described() const;
  /// What is forecast from where, how far there is truth, and what of the data's layout the file goes without.
  std::vector<std::string> description() const;

  /// Lead time `lead` = 1, 2, ...: writes the fields and counts the figures where there is truth.
  void add(int64_t lead, const at::Tensor& prediction);
  /// Completes the files.
  void finish();

  /// Means over the channels by lead time.
  std::vector<std::string> table_lines() const;

 private:
  data::WeatherTimes::Place checked_start(const model::VitOptions& model, const DataConfig& data) const;
  void open_file();
  data::Hdf5ScaleCopy scales_for(const std::string& path) const;
  // A list of coordinates of the file.
  struct Coordinate {
    data::Hdf5DatasetSpec spec;
    at::Tensor values;
  };
  std::vector<Coordinate> coordinates(const data::StoredTimes& times);
  // The state at the start (lead 0), or the true one of a lead time.
  void write_truth(int64_t lead);
  void write_coordinates(const std::vector<Coordinate>& coordinates);
  void open_store(const std::vector<Coordinate>& coordinates, const data::Hdf5Attributes& attributes);
  std::string variable_of(const std::string& dataset, size_t channel) const;  // of a store
  // Fields of all channels, of the forecast or its truth.
  void write(const std::string& dataset, int64_t row, const at::Tensor& fields);
  int64_t num_true_written() const { return std::min(options_.steps, num_true()); }
  // Lead times with truth, however many are asked for.
  int64_t num_true() const { return place_.after() / times_.lead().rows; }
  // The rows of the run from the one before the start on that the forecast may reach.
  Range rows_with_times() const;
  // Rows of the file of the start that its run has.
  Range run_in_file() const;
  Json figures_json() const;

  const ForecastOptions& options_;
  std::string checkpoint_;
  std::string dataset_;
  model::FieldLoss loss_;
  std::string roles_;
  model::FieldWeights loss_weights_;
  const comm::MpiGroup& self_;
  data::WeatherTimes times_;
  data::Normalization normalization_;  // of what is predicted
  data::Grid grid_;
  std::optional<Climatology> climatology_;
  data::WeatherTimes::Place place_;
  data::RowSource::Place in_file_{};  // the same row
  at::Tensor input_;
  at::Tensor start_;                        // the state that persistence predicts
  std::unique_ptr<data::Hdf5Writer> file_;  // or:
  std::unique_ptr<ForecastStore> store_;    // a variable a channel
  bool is_self_contained_ = false;          // with coordinates() and the truth; else with the scales of the source
  std::vector<std::string> left_out_;       // of the source's scales and attributes, with the reasons
  std::vector<Evaluation> figures_;         // by lead time, from 1, as far as there is truth
};

/// Error(kUsage) where the model makes no forecast, or none of so many steps: its output is not its next input. Pure.
void check_rollout(const model::VitOptions& model, const data::FieldRoles& roles, int64_t steps);

/// Error(kUsage) where no forecast can be made of this model on these ranks, or none as the options have it. Pure.
void check_forecast(const StepConfig& config, const data::FieldRoles& roles, const ForecastOptions& options);

/// Makes the forecast, writes its files and prints a table. `config` as from config_for_use(), seen by
/// check_forecast(). Collective over `world`, errors agreed.
void forecast(const RunConfig& config, const ForecastOptions& options, const CheckpointReader& checkpoint,
              const comm::MpiGroup& world);

}  // namespace vit_hybrid::train
