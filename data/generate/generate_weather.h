// A weather data set of an own simulation, written year by year, or a year of it in memory.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "data/generate/shallow_water_weather.h"
#include "data/generate/weather_files.h"

namespace vit_hybrid::comm {
class MpiGroup;
}

namespace vit_hybrid::data {

enum class WeatherKind {
  /// An integration of the rotating shallow-water equations (data/generate/shallow_water.h) on a plane whose physical
  /// size does not depend on height and width; each year begins anew.
  kShallowWater,
  /// Planetary waves (data/generate/planetary_waves.h) on the globe, in channels of ERA5; without a seam between years.
  kWaves,
};

/// Options of `vit_hybrid data generate`.
struct GenerateWeatherOptions {
  std::string out;               ///< folder to be made; it gets train/, valid/ and stats/
  int64_t train_years = 4;       ///< files in train/, 1 to 1000
  int64_t valid_years = 1;       ///< files in valid/, 0 to 1000; their years follow those of training
  int64_t first_year = 1990;     ///< name of the first file; all years lie in 0 to 9999
  int64_t steps_per_year = 730;  ///< samples in a file, 2 to 1,000,000
  WeatherKind weather = WeatherKind::kShallowWater;
  WeatherFormat format = WeatherFormat::kHdf5;
  int64_t channels = 8;                 ///< 1 to 256: see WeatherChannels; of waves 1 to 73: usual_wave_channels()
  std::string channel_names = {};       ///< of waves: a list for wave_channels() in place of the number
  int64_t height = 32;                  ///< rows (latitudes), 8 to 16384
  int64_t width = 64;                   ///< columns (longitudes), 8 to 16384
  uint64_t seed = 0;                    ///< a year is a function of the seed, its number and the grid
  double sample_interval_hours = 12.0;  ///< model time between samples, 0.25 to 240 hours
  bool overwrite = false;               ///< replace files of the same names in a folder that is not empty
};

/// Takes the line that says what a long task begins to do.
using GenerationProgress = std::function<void(const std::string&)>;

/// Error(kUsage) with one line for each option out of its range, or as wave_channels(); `out` is not looked at.
void check_options(const GenerateWeatherOptions& options);

/// Writes OUT/train/YYYY.h5 and OUT/valid/YYYY.h5 (.nc: NetCDF-4), or Zarr stores: of shallow water one a year,
/// OUT/train/YYYY.zarr, of waves OUT/weather.zarr with all years. What is in them, says WeatherFormat; float32. Files
/// of several arrays and those of waves have the dates of their rows, from the begin of each year on; those of waves
/// the latitudes, longitudes, and the fields geopotential_at_surface and land_sea_mask (latitude, longitude). And
/// OUT/stats/global_means.npy, global_stds.npy (1, C, 1, 1) and time_means.npy (1, C, H, W), float32, over the training
/// years, with channels.txt. Years of shallow water are integrated by different ranks at the same time, the rows of
/// waves are shared out; the numbers in the files do not depend on how many ranks there are (the time means of waves to
/// the rounding of double). `progress` (may be empty) is called on rank 0. Collective over `group`, with the same
/// options on all ranks; errors are agreed: Error(kUsage), Error(kCannotCreate), Error(kIo).
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

/// The year `first_year` of the data set that generate_weather() would write of shallow water: the same numbers. On
/// this rank alone; no files. Error(kUsage) as check_options(), Error(kTemporary) when a signal asks the program to
/// stop.
WeatherInMemory generate_weather_in_memory(const GenerateWeatherOptions& options);

/// The year `first_year` of each of several data sets, at the same time on different ranks, and then on all of them.
/// A signal that reaches only some of the ranks ends it at the latest when the years of those are done. Collective over
/// `group`, with the same options on all ranks; errors are agreed.
std::vector<WeatherInMemory> generate_weather_in_memory(const std::vector<GenerateWeatherOptions>& years,
                                                        const comm::MpiGroup& group);

}  // namespace vit_hybrid::data
