// Channels by variable and level, and lists of their names; the waves' draws and tables, the ground, the sun, and a row
// as a sum of products of tables.
#include "data/generate/planetary_waves.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <numbers>
#include <optional>
#include <string_view>
#include <utility>

#include "data/datasets/field_catalogue.h"
#include "data/datasets/year_files.h"
#include "data/generate/c_grid.h"
#include "src/base/error.h"
#include "src/base/random.h"
#include "src/base/text.h"
#include "src/base/utf8.h"

namespace vit_hybrid::data {

namespace {

struct Moments {
  double mean;
  double deviation;
};

constexpr std::array<double, 13> kWaveLevels = {50, 100, 150, 200, 250, 300, 400, 500, 600, 700, 850, 925, 1000};
using Profile = std::array<Moments, kWaveLevels.size()>;

// What a quantity looks like wherever it is measured.
struct WaveLook {
  const char* unit;
  WaveScale scale;
  double warm_tropics;
  double jets;
  double phase;  // turns
};

constexpr WaveLook kPressure = {"Pa", WaveScale::kLinear, 0.0, 0.0, 0.0};
constexpr WaveLook kTemperature = {"K", WaveScale::kLinear, 0.85, 0.0, -0.1};
constexpr WaveLook kZonalWind = {"m s**-1", WaveScale::kLinear, 0.0, 0.45, 0.5};
constexpr WaveLook kMeridionalWind = {"m s**-1", WaveScale::kLinear, 0.0, 0.0, 0.25};
constexpr WaveLook kWater = {"kg m**-2", WaveScale::kPositive, 0.7, 0.0, 0.15};
constexpr WaveLook kRain = {"m", WaveScale::kPositive, 0.2, 0.0, 0.3};
constexpr WaveLook kClouds = {"(0 - 1)", WaveScale::kFraction, 0.0, 0.0, 0.3};

constexpr double kGravity = 9.80665;
constexpr double kLapse = -0.0065 / kGravity;  // K for each m^2/s^2, of the standard atmosphere
constexpr double kPressureLapse = -1.1;        // Pa for each m^2/s^2: the density of air near the ground

struct SurfaceVariable {
  const char* name;
  WaveLook look;
  Moments moments;
  double daily;
  double lapse;
};

constexpr std::array<SurfaceVariable, 16> kSurface{{{"u10", kZonalWind, {-0.1, 5.5}, 0, 0},
                                                    {"v10", kMeridionalWind, {0.2, 4.7}, 0, 0},
                                                    {"u100m", kZonalWind, {0.0, 6.9}, 0, 0},
                                                    {"v100m", kMeridionalWind, {0.2, 6.0}, 0, 0},
                                                    {"t2m", kTemperature, {278.5, 20.0}, 10.0, kLapse},
                                                    {"d2m", kTemperature, {274.0, 19.5}, 2.0, kLapse},
                                                    {"sp", kPressure, {101000.0, 1300.0}, 0, kPressureLapse},
                                                    {"msl", kPressure, {101000.0, 1300.0}, 0, 0},
                                                    {"tcwv", kWater, {18.4, 18.4}, 0, 0},
                                                    {"tcw", kWater, {18.5, 18.5}, 0, 0},
                                                    {"tp", kRain, {1e-4, 1e-4}, 0, 0},
                                                    {"tp6h", kRain, {6e-4, 6e-4}, 0, 0},
                                                    {"tp24h", kRain, {2.4e-3, 2.4e-3}, 0, 0},
                                                    {"sst", kTemperature, {286.5, 11.0}, 0.3, 0},
                                                    {"skt", kTemperature, {279.0, 21.0}, 16.0, kLapse},
                                                    {"tcc", kClouds, {0.5, 0.35}, 0, 0}}};

struct LevelVariable {
  const char* name;
  WaveLook look;
  Profile profile;  // at kWaveLevels
  double daily;     // at 1000 hPa
};

// To two or three digits those of ERA5.
constexpr std::array<LevelVariable, 9> kLevelVariables{{{"u",
                                                         kZonalWind,
                                                         {{{5.6, 15.3},
                                                           {10.3, 13.5},
                                                           {13.5, 16.0},
                                                           {14.2, 17.7},
                                                           {13.3, 18.0},
                                                           {11.8, 17.1},
                                                           {8.9, 14.3},
                                                           {6.6, 12.0},
                                                           {4.8, 10.3},
                                                           {3.3, 9.2},
                                                           {1.4, 8.2},
                                                           {0.6, 7.9},
                                                           {0.0, 6.1}}},
                                                         0},
                                                        {"v",
                                                         kMeridionalWind,
                                                         {{{0.0, 7.1},
                                                           {0.0, 7.5},
                                                           {0.0, 9.6},
                                                           {0.0, 11.9},
                                                           {0.0, 13.4},
                                                           {0.0, 13.4},
                                                           {0.0, 11.2},
                                                           {0.0, 9.2},
                                                           {0.0, 7.8},
                                                           {0.0, 6.9},
                                                           {0.1, 6.3},
                                                           {0.2, 6.5},
                                                           {0.2, 5.3}}},
                                                         0},
                                                        {"z",
                                                         {"m**2 s**-2", WaveScale::kLinear, 0.75, 0.0, 0.0},
                                                         {{{199500, 5900},
                                                           {157700, 5500},
                                                           {133200, 5800},
                                                           {115400, 5820},
                                                           {101200, 5540},
                                                           {89400, 5090},
                                                           {70000, 4150},
                                                           {54100, 3350},
                                                           {40700, 2690},
                                                           {28900, 2130},
                                                           {13750, 1470},
                                                           {7000, 1230},
                                                           {740, 1070}}},
                                                         0},
                                                        {"t",
                                                         kTemperature,
                                                         {{{212.5, 10.3},
                                                           {208.4, 12.5},
                                                           {213.3, 8.9},
                                                           {218.0, 7.2},
                                                           {222.8, 8.5},
                                                           {228.9, 10.7},
                                                           {242.1, 12.7},
                                                           {252.9, 13.1},
                                                           {261.1, 13.4},
                                                           {267.4, 14.8},
                                                           {274.6, 15.6},
                                                           {277.4, 16.1},
                                                           {281.0, 17.1}}},
                                                         6.0},
                                                        {"q",
                                                         {"kg kg**-1", WaveScale::kPositive, 0.7, 0.0, 0.15},
                                                         {{{2.7e-6, 3e-7},
                                                           {2.6e-6, 6e-7},
                                                           {5.5e-6, 3e-6},
                                                           {1.9e-5, 2e-5},
                                                           {5.8e-5, 7e-5},
                                                           {1.3e-4, 1e-4},
                                                           {3.9e-4, 5e-4},
                                                           {8.5e-4, 1e-3},
                                                           {1.54e-3, 2e-3},
                                                           {2.43e-3, 3e-3},
                                                           {4.57e-3, 4e-3},
                                                           {6.0e-3, 5e-3},
                                                           {7.0e-3, 6e-3}}},
                                                         0},
                                                        {"r",
                                                         {"%", WaveScale::kFraction, 0.0, 0.1, 0.3},
                                                         {{{10, 10},
                                                           {25, 20},
                                                           {30, 25},
                                                           {40, 30},
                                                           {50, 30},
                                                           {50, 30},
                                                           {50, 30},
                                                           {48, 30},
                                                           {48, 30},
                                                           {48, 30},
                                                           {50, 25},
                                                           {50, 20},
                                                           {50, 15}}},
                                                         0},
                                                        {"w",
                                                         {"Pa s**-1", WaveScale::kLinear, 0.0, 0.0, 0.4},
                                                         {{{0, 0.01},
                                                           {0, 0.03},
                                                           {0, 0.06},
                                                           {0, 0.09},
                                                           {0, 0.12},
                                                           {0, 0.15},
                                                           {0, 0.18},
                                                           {0, 0.19},
                                                           {0, 0.19},
                                                           {0, 0.18},
                                                           {0, 0.15},
                                                           {0, 0.12},
                                                           {0, 0.09}}},
                                                         0},
                                                        {"vo",
                                                         {"s**-1", WaveScale::kLinear, 0.0, 0.0, 0.5},
                                                         {{{0, 2e-5},
                                                           {0, 3e-5},
                                                           {0, 4e-5},
                                                           {0, 5e-5},
                                                           {0, 6e-5},
                                                           {0, 6e-5},
                                                           {0, 5e-5},
                                                           {0, 5e-5},
                                                           {0, 4e-5},
                                                           {0, 4e-5},
                                                           {0, 4e-5},
                                                           {0, 5e-5},
                                                           {0, 5e-5}}},
                                                         0},
                                                        {"d",
                                                         {"s**-1", WaveScale::kLinear, 0.0, 0.0, 0.75},
                                                         {{{0, 6e-6},
                                                           {0, 1e-5},
                                                           {0, 2e-5},
                                                           {0, 2e-5},
                                                           {0, 2e-5},
                                                           {0, 2e-5},
                                                           {0, 2e-5},
                                                           {0, 2e-5},
                                                           {0, 2e-5},
                                                           {0, 2e-5},
                                                           {0, 2e-5},
                                                           {0, 3e-5},
                                                           {0, 3e-5}}},
                                                         0}}};

constexpr double kHighestPressure = 1000.0;

// Linear in the logarithm of the pressure, beyond the table its end.
Moments at_level(const Profile& profile, double level) {
  const auto* const above = std::lower_bound(kWaveLevels.begin(), kWaveLevels.end(), level);
  if (above == kWaveLevels.begin() || *above == level) {
    return profile[static_cast<size_t>(above - kWaveLevels.begin())];
  }
  const auto i = static_cast<size_t>(above - kWaveLevels.begin());
  const double part = std::log(level / kWaveLevels[i - 1]) / std::log(kWaveLevels[i] / kWaveLevels[i - 1]);
  return {profile[i - 1].mean + part * (profile[i].mean - profile[i - 1].mean),
          profile[i - 1].deviation + part * (profile[i].deviation - profile[i - 1].deviation)};
}

WaveChannel channel_of(const WaveLook& look, const Moments& moments) {
  WaveChannel channel;
  channel.channel.unit = look.unit;
  channel.scale = look.scale;
  channel.mean = moments.mean;
  channel.deviation = moments.deviation;
  channel.warm_tropics = look.warm_tropics;
  channel.jets = look.jets;
  channel.phase = look.phase;
  return channel;
}

std::optional<WaveChannel> surface_channel(const std::string& name) {
  const auto* const found = std::ranges::find(kSurface, std::string_view(name), &SurfaceVariable::name);
  if (found == kSurface.end()) {
    return std::nullopt;
  }
  WaveChannel channel = channel_of(found->look, found->moments);
  channel.channel.variable = name;
  channel.daily = found->daily;
  channel.lapse = found->lapse;
  return channel;
}

// The daily cycle dies out with height, and waves lean to the west with it.
WaveChannel level_channel(const LevelVariable& variable, double level) {
  constexpr double kDailyDepth = 100.0;  // hPa
  constexpr double kLean = 0.05;         // turns for each factor of e
  WaveChannel channel = channel_of(variable.look, at_level(variable.profile, level));
  channel.channel.variable = variable.name;
  channel.channel.level = level;
  channel.daily = variable.daily * std::exp((level - kHighestPressure) / kDailyDepth);
  channel.phase += kLean * std::log(kHighestPressure / level);
  return channel;
}

std::vector<std::string> known_variables() {
  std::vector<std::string> names;
  std::ranges::transform(kSurface, std::back_inserter(names), &SurfaceVariable::name);
  std::ranges::transform(kLevelVariables, std::back_inserter(names), &LevelVariable::name);
  return names;
}

[[noreturn]] void refuse_wave_channel(const std::string& what, const std::string& hint) {
  throw Error(ErrorClass::kUsage, "--channels has " + what, hint);
}

// By a canonical name: "t2m", "z500", "u:10".
WaveChannel channel_named(const std::string& name) {
  if (auto surface = surface_channel(name)) {
    surface->channel.name = name;
    return *surface;
  }
  const size_t end = name.find_last_not_of("0123456789.") + 1;
  const std::string variable = name.substr(0, end > 0 && name[end - 1] == ':' ? end - 1 : end);
  const auto* const found = std::ranges::find(kLevelVariables, std::string_view(variable), &LevelVariable::name);
  if (found == kLevelVariables.end()) {
    const std::vector<std::string> known = known_variables();
    refuse_wave_channel(str("'", shown(name), "', which the waves do not make"),
                        str("the nearest variable is '", nearest_word(variable, known), "'; there are ", join(known)));
  }
  double level = 0.0;
  std::from_chars(name.data() + end, name.data() + name.size(), level);
  if (!(level >= 1.0 && level <= kHighestPressure)) {
    refuse_wave_channel(str("'", shown(name), "'"), str(variable, " needs a level of 1 to ", kHighestPressure,
                                                        " hPa, such as ", variable, "500 or ", variable, ":500:850"));
  }
  WaveChannel channel = level_channel(*found, level);
  channel.channel.name = name;
  return channel;
}

// The names of one entry of a list: "z:500:850" is two.
std::vector<std::string> names_of_entry(const std::string& entry) {
  const size_t colon = entry.find(':');
  if (colon == std::string::npos) {
    return {canonical_channel(entry)};
  }
  std::vector<std::string> names;
  for (size_t begin = colon + 1; begin <= entry.size();) {
    const size_t end = std::min(entry.find(':', begin), entry.size());
    names.push_back(canonical_channel(entry.substr(0, colon + 1) + entry.substr(begin, end - begin)));
    begin = end + 1;
  }
  return names;
}

}  // namespace

std::vector<WaveChannel> wave_channels(const std::string& names) {
  std::vector<WaveChannel> channels;
  for (const std::string& entry : split_channels(names)) {
    for (const std::string& name : names_of_entry(entry)) {
      const bool is_there = std::any_of(channels.begin(), channels.end(),
                                        [&](const WaveChannel& known) { return known.channel.name == name; });
      if (is_there) {
        refuse_wave_channel(str("'", shown(name), "' twice"), "give each channel once");
      }
      channels.push_back(channel_named(name));
    }
  }
  return channels;
}

std::string usual_wave_channels(int64_t count) {
  std::vector<std::string> names = {"u10", "v10", "u100m", "v100m", "t2m", "sp", "msl", "tcwv"};
  for (const char* variable : {"u", "v", "z", "t", "q"}) {
    std::ranges::transform(kWaveLevels, std::back_inserter(names),
                           [&](double level) { return canonical_channel(str(variable, ":", level)); });
  }
  VH_ASSERT(count >= 1 && count <= std::ssize(names), str(count));
  names.resize(static_cast<size_t>(count));
  return join(names, ",");
}

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
