// Samples of generated weather as tensors, and their statistics as the tensors of the files in stats/.
#include "data/generate/weather_samples.h"

#include <ATen/ops/empty.h>

#include <algorithm>

#include "parallel/comm/mpi/mpi_group.h"

namespace vit_hybrid::data {

WeatherYearOptions year_options(const GenerateWeatherOptions& options) {
  return {options.channels, options.height, options.width, options.seed, options.sample_interval_hours};
}

FieldStatistics make_statistics(const GenerateWeatherOptions& options) {
  return {options.channels, options.height * options.width};
}

void next_samples(WeatherYear& year, FieldStatistics& statistics, const at::Tensor& block) {
  auto* to = block.mutable_data_ptr<float>();
  for (int64_t i = 0; i < block.size(0); ++i, to += block.stride(0)) {
    year.advance();
    year.sample(to);
    statistics.add(to);
  }
}

StatisticsTensors statistics_tensors(const FieldStatistics& statistics, const GenerateWeatherOptions& options) {
  const int64_t channels = options.channels;
  StatisticsTensors tensors{at::empty({1, channels, 1, 1}), at::empty({1, channels, 1, 1}),
                            at::empty({1, channels, options.height, options.width})};
  auto* means = tensors.means.mutable_data_ptr<float>();
  auto* stds = tensors.stds.mutable_data_ptr<float>();
  auto* time_means = tensors.time_means.mutable_data_ptr<float>();
  for (int64_t channel = 0; channel < channels; ++channel) {
    means[channel] = static_cast<float>(statistics.mean(channel));
    stds[channel] = static_cast<float>(statistics.deviation(channel));
  }
  for (int64_t i = 0; i < tensors.time_means.numel(); ++i) {
    time_means[i] = static_cast<float>(statistics.time_mean(i));
  }
  return tensors;
}

void broadcast_pieces(const comm::MpiGroup& group, void* data, int64_t bytes, int root) {
  constexpr int64_t kPiece = int64_t{64} << 20;
  for (int64_t first = 0; first < bytes; first += kPiece) {
    group.broadcast(static_cast<char*>(data) + first, std::min(kPiece, bytes - first), root);
  }
}

}  // namespace vit_hybrid::data
