// Climatology: what the anomalies of forecasts are against.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "data/datasets/day_climatology.h"
#include "data/datasets/weather_dataset.h"
#include "parallel/comm/mpi/mpi_group.h"
#include "src/config/run_config.h"

namespace vit_hybrid::train {

/// By day and hour (data::DayClimatology), or the same at all times (climatology_of()).
class Climatology {
 public:
  /// The one at `path`; where that is empty --time-means, else climatology.nc of --stats, where it is there and the
  /// data have dates, else time_means.npy there, else none. Of what `times` predicts, which outlives it. Collective
  /// over `group`, errors agreed: those of DayClimatology and climatology_of(), Error(kBadData) where the data have no
  /// dates.
  Climatology(const DataConfig& data, const std::string& path, const data::WeatherTimes& times,
              const comm::MpiGroup& group);

  /// Error(kBadData) unless it is known at these rows of the data.
  void require(const std::vector<Range>& runs) const;
  /// That of DayClimatology.
  bool background_reads() const { return !by_day_ || by_day_->background_reads(); }
  /// At `count` rows from `row` on: [count, C, H, W], or [C, H, W] for all, or undefined; normalised.
  at::Tensor read(int64_t row, int64_t count) const;
  /// "day and hour", "time means", "channel means".
  std::string text() const;

 private:
  data::DayTime day_time(int64_t row) const;

  const data::WeatherTimes& times_;
  at::Tensor mean_;
  std::optional<data::DayClimatology> by_day_;
  std::vector<double> seconds_;  // of the data's rows
};

}  // namespace vit_hybrid::train
