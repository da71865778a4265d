// WeatherYear: one year of generated weather, an integration from its own keyed initial state, sample by sample.
#pragma once

#include <cstdint>

#include "data/generate/flow_driving.h"
#include "data/generate/shallow_water.h"
#include "data/generate/weather_channels.h"

namespace vit_hybrid::data {

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
  int64_t steps_per_sample() const { return steps_per_sample_; }

 private:
  int64_t year_;
  WeatherChannels channels_;
  ShallowWater model_;
  FlowDriving driving_;
  ShallowWaterState state_;
  int64_t steps_per_sample_;
  double time_step_;
};

}  // namespace vit_hybrid::data
