// Samples of generated weather as tensors, and their statistics as the tensors of the files in stats/.
#pragma once

#include <ATen/core/Tensor.h>

#include "data/generate/field_statistics.h"
#include "data/generate/generate_weather.h"
#include "data/generate/weather_year.h"

namespace vit_hybrid::data {

WeatherYearOptions year_options(const GenerateWeatherOptions& options);

/// Statistics of nothing yet, for samples of these options.
FieldStatistics make_statistics(const GenerateWeatherOptions& options);

/// Fills `block` [n, C, H, W], float32, with the next n samples of the year and adds them to `statistics`.
void next_samples(WeatherYear& year, FieldStatistics& statistics, const at::Tensor& block);

/// float32 tensors: means and stds [1, C, 1, 1], time_means [1, C, H, W].
struct StatisticsTensors {
  at::Tensor means;
  at::Tensor stds;
  at::Tensor time_means;
};
StatisticsTensors statistics_tensors(const FieldStatistics& statistics, const GenerateWeatherOptions& options);

/// `bytes` at `data` become those of rank `root`, in pieces that a control message can carry. Collective over `group`.
void broadcast_pieces(const comm::MpiGroup& group, void* data, int64_t bytes, int root);

}  // namespace vit_hybrid::data
