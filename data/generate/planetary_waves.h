// PlanetaryWaves: weather of a few waves that travel around the globe, for any channels of ERA5 and any time at once;
// and these channels: names, units, and plausible means and deviations.
#pragma once

#include <array>
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

/// Rows from 90 to -90 degrees, both poles included, columns from 0 to the east. A channel is
///   y(phi, lambda, t) = mean state(phi) + sum over k of a_k s_k(phi) cos(m_k lambda - omega_k t + psi_k),
/// scaled to the channel (WaveScale), with wave numbers m_k = 1 .. 6 of periods of 3 to 12 days that all channels have
/// in common, and amplitudes a_k and phases psi_k of its own: the next state is a rotation of the waves of this one.
/// Temperatures have a daily cycle beside, which follows the sun's elevation and is larger above land; those at the
/// surface, and its pressure, fall with the height of the ground. A field is a function of the seed, the channel's
/// name, the time and the grid alone.
class PlanetaryWaves {
 public:
  static constexpr int kNumWaves = 6;

  PlanetaryWaves(std::vector<WaveChannel> channels, int64_t height, int64_t width, uint64_t seed);

  /// Writes [channels, height, width] floats: the state at `hours` since the begin of 1900. On several threads.
  void sample(double hours, float* to) const;

  /// [height, width]: of the ground, m^2/s^2, 0 above the sea; and the part of land, 0 to 1.
  const std::vector<float>& geopotential_at_surface() const { return geopotential_; }
  const std::vector<float>& land_sea_mask() const { return land_; }

 private:
  struct Wave {
    double number;
    double turns_per_hour;
    std::vector<double> shape;  // by row
  };
  struct Look {
    std::array<double, kNumWaves> amplitude;
    std::array<double, kNumWaves> phase;  // turns
  };

  void make_ground();
  Look look_of(const WaveChannel& channel) const;
  std::vector<float> sun_above_land(double hours) const;
  void write_row(size_t channel, int64_t row, double hours, const float* sun, float* to) const;

  std::vector<WaveChannel> channels_;
  int64_t height_;
  int64_t width_;
  uint64_t seed_;
  std::vector<Wave> waves_;
  std::vector<Look> looks_;        // by channel
  std::vector<float> cosines_;     // [wave, column] of m_k lambda
  std::vector<float> sines_;       // likewise
  std::vector<double> latitudes_;  // radians, by row
  std::vector<float> geopotential_;
  std::vector<float> land_;
};

}  // namespace vit_hybrid::data
