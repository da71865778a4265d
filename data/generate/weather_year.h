// WeatherYear: a year of generated weather, sample by sample, and its statistics.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

#include "data/generate/generate_weather.h"
#include "data/generate/planet.h"
#include "data/generate/shallow_water.h"
#include "data/generate/weather_channels.h"

namespace vit_hybrid::comm {
class MpiGroup;
}

namespace vit_hybrid::data {

/// Moments of samples [channels, cells]. What several objects hold can be merged; the result depends on the order of
/// additions and merges, but on nothing else.
class FieldStatistics {
 public:
  FieldStatistics(int64_t channels, int64_t cells);

  void add(const float* sample);
  /// Adds what `other` holds: T. F. Chan, G. H. Golub, R. J. LeVeque, "Algorithms for computing the sample variance",
  /// The American Statistician 37 (1983), equation (1.5).
  void merge(const FieldStatistics& other);

  int64_t num_samples() const { return num_samples_; }
  /// Mean over samples and cells.
  double mean(int64_t channel) const;
  /// Standard deviation over samples and cells (of the population: divided by their number).
  double deviation(int64_t channel) const;
  /// Mean over the samples at element `index` of [channels, cells].
  double time_mean(int64_t index) const;

  /// All of the state, to be sent to another rank, and its restoration there.
  std::vector<double> pack() const;
  void unpack(std::span<const double> packed);
  int64_t packed_size() const { return 1 + 2 * channels_ + channels_ * cells_; }

 private:
  /// The mean and the sum of squared deviations of `count` more values.
  void merge_channel(int64_t channel, double count, double mean, double squares);

  int64_t channels_;
  int64_t cells_;
  int64_t num_samples_ = 0;
  std::vector<double> means_;    // by channel
  std::vector<double> squares_;  // sums of squared deviations from the mean, by channel
  std::vector<double> sums_;     // over samples, by channel and cell
};

/// What a year is a function of.
struct WeatherYearOptions {
  int64_t channels = 8;
  int64_t height = 32;
  int64_t width = 64;
  uint64_t seed = 0;
  double sample_interval_hours = 12.0;
};

/// Samples before the first one that counts: the flow needs 30 days to forget its initial state.
int64_t spin_up_samples(double sample_interval_hours);

/// The integration of one year. Its samples depend on the options and the year alone.
class WeatherYear {
 public:
  WeatherYear(const WeatherYearOptions& options, int64_t year);

  /// Advances by one sample interval. Error(kInternal) if the flow is not finite any more.
  void advance();
  /// Writes the state as [channels, height, width] floats.
  void sample(float* to) const { channels_.sample(model_.grid(), state_, to); }

  const WeatherChannels& channels() const { return channels_; }
  const CGrid& grid() const { return model_.grid(); }
  const ShallowWaterState& state() const { return state_; }

 private:
  int64_t year_;
  WeatherChannels channels_;
  ShallowWater model_;
  FlowDriving driving_;
  ShallowWaterState state_;
  int64_t steps_per_sample_;
  double time_step_;
};

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
