// The waves' draws and tables, the ground, the sun, and a row as a sum of products of tables.
#include "data/generate/planetary_waves.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

#include "data/generate/c_grid.h"
#include "src/base/random.h"

namespace vit_hybrid::data {

namespace {

constexpr double kTurn = 2.0 * std::numbers::pi;
constexpr double kRightAngle = 0.5 * std::numbers::pi;
constexpr double kHoursPerDay = 24.0;

RandomStream wave_stream(uint64_t seed, const std::string& what, uint64_t number = 0) {
  return {seed, Purpose::kSyntheticData, name_key(("planetary waves: " + what).c_str()), number};
}

double between(const RandomStream& random, uint64_t draw, double least, double most) {
  return least + (most - least) * random.uniform(draw);
}

double latitude_of(int64_t row, int64_t height) {
  return kRightAngle - std::numbers::pi * static_cast<double>(row) / static_cast<double>(height - 1);
}

// Nothing at the poles, where all longitudes are one point; of the mean square 2 over the latitudes, so that the wave
// has the variance 1.
class WaveShape {
 public:
  WaveShape(double nodes, double offset) : nodes_(nodes), offset_(offset) {
    constexpr int64_t kPoints = 181;
    double sum = 0.0;
    for (int64_t i = 0; i < kPoints; ++i) {
      const double value = raw(latitude_of(i, kPoints));
      sum += value * value;
    }
    factor_ = std::sqrt(2.0 * static_cast<double>(kPoints) / sum);
  }
  double at(double latitude) const { return factor_ * raw(latitude); }

 private:
  double raw(double latitude) const {
    return std::cos(latitude) * std::cos(latitude) * std::cos(nodes_ * latitude + offset_);
  }

  double nodes_;
  double offset_;
  double factor_ = 1.0;
};

// Of mean 0 and variance 1 over the latitudes.
double mean_state(const WaveChannel& channel, double latitude) {
  return std::numbers::sqrt2 * (std::sqrt(channel.warm_tropics) * std::cos(2.0 * latitude) -
                                std::sqrt(channel.jets) * std::cos(4.0 * latitude));
}

// The hot loop: `base` and what the waves add to it. cosines and sines are [kNumWaves, width].
void add_waves(int64_t width, float base, const std::array<float, PlanetaryWaves::kNumWaves>& of_cosine,
               const std::array<float, PlanetaryWaves::kNumWaves>& of_sine, const float* cosines, const float* sines,
               float* to) {
  for (int64_t j = 0; j < width; ++j) {
    float sum = base;
    for (int64_t k = 0; k < PlanetaryWaves::kNumWaves; ++k) {
      const auto i = static_cast<size_t>(k);
      sum += of_cosine[i] * cosines[k * width + j] + of_sine[i] * sines[k * width + j];
    }
    to[j] = sum;
  }
}

void scale_row(const WaveChannel& channel, int64_t width, float* row) {
  const auto mean = static_cast<float>(channel.mean);
  const auto deviation = static_cast<float>(channel.deviation);
  constexpr float kOffset = 1.5F;  // y + 1.5 is seldom negative, its square has about the deviation of its mean
  constexpr float kMeanSquare = kOffset * kOffset + 1.0F;
  switch (channel.scale) {
    case WaveScale::kLinear:
      for (int64_t j = 0; j < width; ++j) {
        row[j] = mean + deviation * row[j];
      }
      return;
    case WaveScale::kPositive:
      for (int64_t j = 0; j < width; ++j) {
        row[j] = mean / kMeanSquare * (row[j] + kOffset) * (row[j] + kOffset);
      }
      return;
    case WaveScale::kFraction:
      for (int64_t j = 0; j < width; ++j) {
        row[j] = mean + mean * row[j] / std::sqrt(1.0F + row[j] * row[j]);
      }
  }
}

void add_product(int64_t width, double factor, const float* values, float* row) {
  const auto by = static_cast<float>(factor);
  for (int64_t j = 0; j < width; ++j) {
    row[j] += by * values[j];
  }
}

}  // namespace

PlanetaryWaves::PlanetaryWaves(std::vector<WaveChannel> channels, int64_t height, int64_t width, uint64_t seed)
    : channels_(std::move(channels)), height_(height), width_(width), seed_(seed) {
  for (int64_t row = 0; row < height_; ++row) {
    latitudes_.push_back(latitude_of(row, height_));
  }
  constexpr double kShortest = 3.0, kLongest = 12.0;  // days
  constexpr double kMostNodes = 3.0;
  for (int k = 0; k < kNumWaves; ++k) {
    const RandomStream random = wave_stream(seed_, "wave", static_cast<uint64_t>(k));
    const double days = between(random, 0, kShortest, kLongest);
    const WaveShape shape(between(random, 1, 0.0, kMostNodes), between(random, 2, 0.0, kTurn));
    Wave wave{1.0 + k, 1.0 / (days * kHoursPerDay), {}};
    std::transform(latitudes_.begin(), latitudes_.end(), std::back_inserter(wave.shape),
                   [&](double latitude) { return shape.at(latitude); });
    for (int64_t column = 0; column < width_; ++column) {
      const double turns = wave.number * static_cast<double>(column) / static_cast<double>(width_);
      cosines_.push_back(static_cast<float>(std::cos(kTurn * turns)));
      sines_.push_back(static_cast<float>(std::sin(kTurn * turns)));
    }
    waves_.push_back(std::move(wave));
  }
  std::transform(channels_.begin(), channels_.end(), std::back_inserter(looks_),
                 [&](const WaveChannel& channel) { return look_of(channel); });
  make_ground();
}

PlanetaryWaves::Look PlanetaryWaves::look_of(const WaveChannel& channel) const {
  const RandomStream random = wave_stream(seed_, channel.channel.name);
  constexpr double kLeast = 0.4, kMost = 1.0;
  constexpr double kSpread = 0.15;  // turns from what the quantity has
  Look look{};
  double sum = 0.0;
  for (size_t k = 0; k < kNumWaves; ++k) {
    look.amplitude[k] = between(random, 2 * k, kLeast, kMost);
    look.phase[k] =
        wave_stream(seed_, "phase", k).uniform(0) + channel.phase + between(random, 2 * k + 1, -kSpread, kSpread);
    sum += look.amplitude[k] * look.amplitude[k];
  }
  const double left = 1.0 - channel.warm_tropics - channel.jets;  // of the variance
  for (double& amplitude : look.amplitude) {
    amplitude *= std::sqrt(left / sum);
  }
  return look;
}

// Standing waves, of which what is above 0 is land.
void PlanetaryWaves::make_ground() {
  constexpr double kHighest = 1.5e4;  // m^2/s^2, where the waves are at their largest
  constexpr double kCoast = 4.0;      // how fast the sea becomes land
  const RandomStream random = wave_stream(seed_, "ground");
  for (int64_t row = 0; row < height_; ++row) {
    const double cosine = std::cos(latitudes_[static_cast<size_t>(row)]);
    for (int64_t column = 0; column < width_; ++column) {
      const double longitude = kTurn * static_cast<double>(column) / static_cast<double>(width_);
      double sum = -0.05;
      for (uint64_t m = 1; m <= 4; ++m) {
        const double tilt = between(random, 2 * m, -2.0, 2.0) * latitudes_[static_cast<size_t>(row)];
        const double offset = between(random, 2 * m + 1, 0.0, kTurn);
        sum += 0.3 * cosine * std::cos(static_cast<double>(m) * longitude + tilt + offset);
      }
      const double above = std::max(sum, 0.0);
      land_.push_back(static_cast<float>(std::min(kCoast * above, 1.0)));
      geopotential_.push_back(static_cast<float>(kHighest * above * above));
    }
  }
}

// [height, width]: the sine of the sun's elevation, 0 at night, less its mean over day and globe; a fifth of it above
// the sea.
std::vector<float> PlanetaryWaves::sun_above_land(double hours) const {
  constexpr double kTilt = 23.44 / 360.0 * kTurn;
  constexpr double kDaysPerYear = 365.2425;
  constexpr double kSolstice = 10.0;  // days before the begin of a year
  constexpr double kMean = 0.2;
  constexpr double kAboveSea = 0.2;
  const double days = hours / kHoursPerDay;
  const double declination = -kTilt * std::cos(kTurn * (days + kSolstice) / kDaysPerYear);
  const double turns = days - std::floor(days) - 0.5;  // of the sun from the meridian of 0 degrees
  std::vector<float> sun(land_.size());
  std::vector<double> cosine_of_hour;
  for (int64_t column = 0; column < width_; ++column) {
    cosine_of_hour.push_back(std::cos(kTurn * (turns + static_cast<double>(column) / static_cast<double>(width_))));
  }
  for_each_row(height_, width_, [&](int64_t row) {
    const double latitude = latitudes_[static_cast<size_t>(row)];
    const double always = std::sin(latitude) * std::sin(declination);
    const double by_hour = std::cos(latitude) * std::cos(declination);
    for (int64_t column = 0; column < width_; ++column) {
      const auto i = static_cast<size_t>(row * width_ + column);
      const double elevation = std::max(always + by_hour * cosine_of_hour[static_cast<size_t>(column)], 0.0);
      sun[i] = static_cast<float>((elevation - kMean) * (kAboveSea + (1.0 - kAboveSea) * land_[i]));
    }
  });
  return sun;
}

void PlanetaryWaves::write_row(size_t channel, int64_t row, double hours, const float* sun, float* to) const {
  const WaveChannel& of = channels_[channel];
  std::array<float, kNumWaves> of_cosine{}, of_sine{};
  for (size_t k = 0; k < kNumWaves; ++k) {
    const double turns = looks_[channel].phase[k] - waves_[k].turns_per_hour * hours;
    const double angle = kTurn * (turns - std::floor(turns));
    const double amplitude = looks_[channel].amplitude[k] * waves_[k].shape[static_cast<size_t>(row)];
    of_cosine[k] = static_cast<float>(amplitude * std::cos(angle));
    of_sine[k] = static_cast<float>(-amplitude * std::sin(angle));
  }
  const auto base = static_cast<float>(mean_state(of, latitudes_[static_cast<size_t>(row)]));
  add_waves(width_, base, of_cosine, of_sine, cosines_.data(), sines_.data(), to);
  scale_row(of, width_, to);
  if (of.daily != 0.0) {
    add_product(width_, of.daily, sun + row * width_, to);
  }
  if (of.lapse != 0.0) {
    add_product(width_, of.lapse, geopotential_.data() + row * width_, to);
  }
}

void PlanetaryWaves::sample(double hours, float* to) const {
  const std::vector<float> sun = sun_above_land(hours);
  const auto num_channels = static_cast<int64_t>(channels_.size());
  for_each_row(num_channels * height_, width_, [&](int64_t i) {
    write_row(static_cast<size_t>(i / height_), i % height_, hours, sun.data(), to + i * width_);
  });
}

}  // namespace vit_hybrid::data
