// WeatherChannels: the physical fields of a shallow-water flow; WeatherYear: a year of them, sample by sample.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/generate/c_grid.h"
#include "data/generate/planet.h"
#include "data/generate/shallow_water.h"

namespace vit_hybrid::data {

struct GenerateWeatherOptions;

/// The first `count` of: u, v (wind, m/s), height (m), vorticity, divergence (1/s), potential_vorticity (1/(m s)),
/// kinetic_energy (m^2/s^2), then tracer_1, tracer_2, ... (mixing ratios in [0, 1] at their sources).
class WeatherChannels {
 public:
  explicit WeatherChannels(int64_t count);

  int64_t count() const { return static_cast<int64_t>(names_.size()); }
  const std::vector<std::string>& names() const { return names_; }
  const std::vector<std::string>& units() const { return units_; }
  /// Tracers that the model must carry for these channels.
  int64_t num_tracers() const;
  /// Writes [count, rows, columns] floats: every channel at the centres of the cells, corner and face values averaged
  /// to them, the northernmost row first as in ERA5. Halos of `state` are up to date.
  void sample(const CGrid& grid, const ShallowWaterState& state, float* to) const;

 private:
  std::vector<std::string> names_;
  std::vector<std::string> units_;
};

/// The integration of one year. Its samples depend on the options and the year alone.
class WeatherYear {
 public:
  WeatherYear(const GenerateWeatherOptions& options, int64_t year);

  /// Advances by one sample interval. Error(kInternal) if the flow is not finite any more.
  void advance();
  /// Advances, and writes [C, H, W] floats.
  void next_sample(float* to);

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
