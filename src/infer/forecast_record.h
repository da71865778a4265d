// ForecastRecord: what a forecast leaves behind: fields, and figures by lead time. On one rank.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "data/datasets/weather_times.h"
#include "data/hdf5/hdf5_scales.h"
#include "data/hdf5/hdf5_writer.h"
#include "parallel/comm/mpi/mpi_group.h"
#include "src/checkpoint/training_data.h"
#include "src/config/run_config.h"
#include "src/infer/forecast_options.h"
#include "src/report/evaluation.h"
#include "src/report/metrics_log.h"

namespace vit_hybrid::train {

class ForecastRecord {
 public:
  /// Opens the data of `config` and checks the options against them and the model: Error(kUsage), Error(kMissingInput),
  /// Error(kBadData). Then refuses files that are there: Error(kCannotCreate). This process is alone in `self`, which
  /// outlives the record, as does `options`. `trained` is what the model of `checkpoint` was trained on: its statistics
  /// count where the configuration names none, its latitudes where the data have none.
  ForecastRecord(const RunConfig& config, const ForecastOptions& options, const std::string& checkpoint,
                 const TrainingData& trained, const comm::MpiGroup& self);

  const at::Tensor& start() const { return start_; }  ///< [C, H, W], normalised
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
  /// By lead time, from 1; shorter than the forecast where truth ends.
  const std::vector<Evaluation>& figures() const { return figures_; }

 private:
  void check_model(const RunConfig& config) const;
  void choose_place();
  void open_file();
  data::Hdf5ScaleCopy scales_for(const std::string& path) const;
  void copy_scales();
  Json figures_json() const;
  std::string source_text() const;

  const ForecastOptions& options_;
  ForecastPaths paths_;
  std::string checkpoint_;
  std::string dataset_;
  const comm::MpiGroup& self_;
  data::WeatherTimes times_;
  data::Grid grid_;
  at::Tensor climatology_;
  data::WeatherTimes::Place place_;
  at::Tensor start_;
  std::unique_ptr<data::Hdf5Writer> file_;
  std::vector<std::string> left_out_;  // of the source's scales and attributes, with the reasons
  std::vector<Evaluation> figures_;
};

}  // namespace vit_hybrid::train
