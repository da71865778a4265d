// PlanetaryWaves: weather of a few waves that travel around the globe, for any channels of ERA5 and any time at once.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "data/generate/wave_channels.h"

namespace vit_hybrid::data {

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
