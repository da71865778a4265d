// The channels of ERA5 that planetary waves stand in for: names, units, and plausible means and deviations.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace vit_hybrid::data {

/// A channel of generated weather, and what it is of.
struct GeneratedChannel {
  std::string name;      ///< "t2m", "z500"; "u:10" at 10 hPa
  std::string variable;  ///< "t2m", "z"
  double level = 0.0;    ///< hPa; 0: the variable has no levels
  std::string unit;
};

/// How values come of a field y without unit, whose mean is about 0 and whose deviation about 1.
enum class WaveScale {
  kLinear,    ///< mean + deviation y
  kPositive,  ///< never below 0, of this mean and about as large a deviation
  kFraction,  ///< between 0 and twice the mean
};

struct WaveChannel {
  GeneratedChannel channel;
  WaveScale scale = WaveScale::kLinear;
  double mean = 0.0;
  double deviation = 1.0;   ///< of kLinear
  double warm_tropics = 0;  ///< part of the variance that is warm at the equator and cold at the poles
  double jets = 0;          ///< part of it that is westerly in middle latitudes
  double phase = 0;         ///< turns by which the waves are ahead of those of the geopotential at 1000 hPa
  double daily = 0;         ///< units between night and noon above land
  double lapse = 0;         ///< units for each m^2/s^2 of the surface's geopotential
};

/// Of a list as --channels has it ("u10,t2m,z:500:850"), in its order. The names are those of field_catalogue.h, levels
/// 1 to 1000 hPa. Error(kUsage) for names that are not known, twice there, or without a level where one is needed.
std::vector<WaveChannel> wave_channels(const std::string& names);

/// The first `count` of 73: u10, v10, u100m, v100m, t2m, sp, msl, tcwv, then u, v, z, t, q at 13 levels each, with
/// commas between them.
std::string usual_wave_channels(int64_t count);
inline constexpr int64_t kNumUsualWaveChannels = 73;

}  // namespace vit_hybrid::data
