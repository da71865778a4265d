// A weather data set of an own simulation, written year by year, and the physical fields that its channels show.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "data/generate/c_grid.h"

namespace vit_hybrid::data {

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

}  // namespace vit_hybrid::data

namespace vit_hybrid::comm {
class MpiGroup;
}

namespace vit_hybrid::data {

/// Options of `vit_hybrid data generate`. The fields come from an integration of the rotating shallow-water equations
/// (data/generate/shallow_water.h) on a plane whose physical size does not depend on height and width.
struct GenerateWeatherOptions {
  std::string out;                      ///< folder to be made; it gets train/, valid/ and stats/
  int64_t train_years = 4;              ///< files in train/, 1 to 1000
  int64_t valid_years = 1;              ///< files in valid/, 0 to 1000; their years follow those of training
  int64_t first_year = 1990;            ///< name of the first file; all years lie in 0 to 9999
  int64_t steps_per_year = 730;         ///< samples in a file, 2 to 1,000,000
  int64_t channels = 8;                 ///< 1 to 256: see WeatherChannels; from the eighth on they are tracers
  int64_t height = 32;                  ///< rows (latitudes), 8 to 16384
  int64_t width = 64;                   ///< columns (longitudes), 8 to 16384
  uint64_t seed = 0;                    ///< a year is a function of the seed, its number and the grid
  double sample_interval_hours = 12.0;  ///< model time between samples, 0.25 to 240 hours
  bool overwrite = false;               ///< replace files of the same names in a folder that is not empty
};

/// Takes the line that says what a long task begins to do.
using GenerationProgress = std::function<void(const std::string&)>;

/// Error(kUsage) with one line for each option out of its range; `out` is not looked at.
void check_options(const GenerateWeatherOptions& options);

/// Writes OUT/train/YYYY.h5 and OUT/valid/YYYY.h5, each with the dataset `fields` (time, channel, height, width) in
/// float32 and its attributes `channels` and `units` (separated by commas), and OUT/stats/global_means.npy,
/// global_stds.npy (1, C, 1, 1) and time_means.npy (1, C, H, W), float32, over the training years. The years are
/// integrated by different ranks at the same time; the numbers in the files do not depend on how many there are.
/// `progress` (may be empty) is called on rank 0. Collective over `group`, with the same options on all ranks; errors
/// are agreed: Error(kUsage), Error(kCannotCreate), Error(kIo).
void generate_weather(const GenerateWeatherOptions& options, const comm::MpiGroup& group,
                      const GenerationProgress& progress = {});

/// One year of generated weather in memory, not normalized, all float32.
struct WeatherInMemory {
  at::Tensor fields;      ///< [T, C, H, W], T = steps_per_year
  at::Tensor means;       ///< [1, C, 1, 1]
  at::Tensor stds;        ///< [1, C, 1, 1]
  at::Tensor time_means;  ///< [1, C, H, W]
  std::vector<std::string> channel_names;
};

/// The year `first_year` of the data set that generate_weather() would write: the same numbers. On this rank alone; no
/// files. Error(kUsage) as check_options(), Error(kTemporary) when a signal asks the program to stop.
WeatherInMemory generate_weather_in_memory(const GenerateWeatherOptions& options);

/// The year `first_year` of each of several data sets, at the same time on different ranks, and then on all of them.
/// A signal that reaches only some of the ranks ends it at the latest when the years of those are done. Collective over
/// `group`, with the same options on all ranks; errors are agreed.
std::vector<WeatherInMemory> generate_weather_in_memory(const std::vector<GenerateWeatherOptions>& years,
                                                        const comm::MpiGroup& group);

}  // namespace vit_hybrid::data
