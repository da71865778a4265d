// Planetary waves: names and levels, plausible values, and what there is to learn of them.
#include "data/generate/planetary_waves.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <complex>
#include <numbers>
#include <numeric>
#include <string>
#include <vector>

#include "src/base/error.h"
#include "tests/support/contains.h"

using namespace vit_hybrid;
using namespace vit_hybrid::testing;
using data::PlanetaryWaves;

namespace {

constexpr int64_t kWaveRows = 19;
constexpr int64_t kWaveColumns = 24;
constexpr int64_t kWaveCells = kWaveRows * kWaveColumns;

std::vector<std::string> wave_names(const std::string& list) {
  std::vector<std::string> names;
  for (const data::WaveChannel& wave : data::wave_channels(list)) {
    names.push_back(wave.channel.name);
  }
  return names;
}

std::string wave_refusal(const std::string& list) {
  try {
    data::wave_channels(list);
  } catch (const Error& error) {
    CHECK(error.error_class() == ErrorClass::kUsage);
    return error.message() + " | " + error.hint();
  }
  return "no error";
}

std::vector<float> wave_state(const PlanetaryWaves& waves, size_t num_channels, double hours) {
  std::vector<float> state(num_channels * kWaveCells);
  waves.sample(hours, state.data());
  return state;
}

// The part of wave number `number` in a row.
std::complex<double> wave_in_row(const float* row, int number) {
  std::complex<double> sum = 0.0;
  for (int64_t column = 0; column < kWaveColumns; ++column) {
    const double angle = -2.0 * std::numbers::pi * number * static_cast<double>(column) / kWaveColumns;
    sum += static_cast<double>(row[column]) * std::polar(1.0, angle);
  }
  return sum;
}

}  // namespace

TEST_CASE("planetary waves: channels by ERA5's names and levels") {
  CHECK(wave_names("10u, 2m_temperature,z:500:850.0,temperature700,u:10") ==
        std::vector<std::string>{"u10", "t2m", "z500", "z850", "t700", "u:10"});
  const auto z = data::wave_channels("z600").front(), between = data::wave_channels("z:550").front();
  CHECK(z.channel.variable == "z");
  CHECK(z.channel.level == 600.0);
  CHECK(z.mean == 40700.0);
  CHECK(between.mean > 40700.0);
  CHECK(between.mean < 54100.0);
  const std::vector<std::string> usual = wave_names(data::usual_wave_channels(data::kNumUsualWaveChannels));
  CHECK(usual.size() == 73);
  CHECK(usual[4] == "t2m");
  CHECK(usual[72] == "q1000");
  CHECK(data::usual_wave_channels(2) == "u10,v10");
  CHECK(contains(wave_refusal("u10,zz500"), "'zz500', which the waves do not make"));
  CHECK(contains(wave_refusal("z"), "z needs a level of 1 to 1000 hPa, such as z500"));
  CHECK(contains(wave_refusal("z:1001"), "needs a level of 1 to 1000"));
  CHECK(contains(wave_refusal("z:low"), "needs a level"));
  CHECK(contains(wave_refusal("t2m,2t"), "'t2m' twice"));
  CHECK(contains(wave_refusal("u10,,t2m"), "'', which the waves do not make"));
}

TEST_CASE("planetary waves: values are those of ERA5 in mean and deviation, and one at the poles") {
  const std::string list = "t2m,z500,u250,q700,tcc,msl,sp";
  const auto channels = data::wave_channels(list);
  const PlanetaryWaves waves(channels, kWaveRows, kWaveColumns, 5);
  constexpr int kTimes = 60;
  for (size_t c = 0; c < channels.size(); ++c) {
    INFO(channels[c].channel.name);
    double sum = 0.0, squares = 0.0;
    for (int time = 0; time < kTimes; ++time) {
      const std::vector<float> state = wave_state(waves, channels.size(), 8e5 + 13.0 * time);
      const float* const field = state.data() + c * kWaveCells;
      for (int64_t i = 0; i < kWaveCells; ++i) {
        sum += field[i] - channels[c].mean;
        squares += (field[i] - channels[c].mean) * (field[i] - channels[c].mean);
      }
      const bool is_positive = channels[c].scale != data::WaveScale::kLinear;
      CHECK((!is_positive || *std::min_element(field, field + kWaveCells) >= 0.0F));
      const auto [least, most] = std::minmax_element(field, field + kWaveColumns);
      CHECK(*most - *least <= 1e-3 * channels[c].deviation);
    }
    const double mean = sum / (kTimes * kWaveCells);
    const double deviation = std::sqrt(squares / (kTimes * kWaveCells) - mean * mean);
    // The ground takes from the pressure at the surface what the waves have not.
    const bool is_on_ground = channels[c].lapse != 0.0;
    CHECK((is_on_ground || std::fabs(mean) < 0.3 * channels[c].deviation));
    CHECK(deviation > 0.5 * channels[c].deviation);
    CHECK((is_on_ground || deviation < 1.7 * channels[c].deviation));
  }
  const auto [sea, land] = std::minmax_element(waves.land_sea_mask().begin(), waves.land_sea_mask().end());
  CHECK(*sea == 0.0F);
  CHECK(*land == 1.0F);
  for (int64_t i = 0; i < kWaveCells; ++i) {
    const auto at = static_cast<size_t>(i);
    CHECK((waves.geopotential_at_surface()[at] > 0.0F) == (waves.land_sea_mask()[at] > 0.0F));
  }
}

TEST_CASE("planetary waves: a state follows from the one before, and is not the same") {
  const auto channels = data::wave_channels("z500,v850");
  const PlanetaryWaves waves(channels, kWaveRows, kWaveColumns, 3);
  std::vector<std::vector<float>> states;
  for (int step = 0; step < 3; ++step) {
    states.push_back(wave_state(waves, 2, 7.5e5 + 6.0 * step));
  }
  for (size_t c = 0; c < 2; ++c) {
    for (int number = 1; number <= PlanetaryWaves::kNumWaves; ++number) {
      INFO(channels[c].channel.name, ", wave number ", number);
      const size_t row = (c * kWaveRows + 5) * kWaveColumns;
      const auto part = [&](size_t step) { return wave_in_row(states[step].data() + row, number); };
      const double size = std::abs(part(2));
      REQUIRE(size > 0.0);
      CHECK(std::abs(part(2) - part(1) * part(1) / part(0)) < 1e-2 * size);  // the same rotation again
      CHECK(std::abs(part(2) - part(1)) > 0.1 * size);                       // which persistence lacks
    }
  }
}

TEST_CASE("planetary waves: a channel is a function of seed, name and time alone") {
  const PlanetaryWaves many(data::wave_channels("u10,t2m,z500"), kWaveRows, kWaveColumns, 3);
  const PlanetaryWaves one(data::wave_channels("2t"), kWaveRows, kWaveColumns, 3);
  const PlanetaryWaves other(data::wave_channels("t2m"), kWaveRows, kWaveColumns, 4);
  const std::vector<float> state = wave_state(many, 3, 1000.5);
  const std::vector<float> t2m = wave_state(one, 1, 1000.5);
  CHECK(std::equal(t2m.begin(), t2m.end(), state.begin() + kWaveCells));
  CHECK(t2m != wave_state(other, 1, 1000.5));
  CHECK(t2m != wave_state(one, 1, 1001.5));
}

TEST_CASE("planetary waves: noon is warmer than midnight, above land most") {
  const PlanetaryWaves waves(data::wave_channels("t2m,t500"), kWaveRows, kWaveColumns, 1);
  constexpr int kDays = 120;  // over which the waves come to nothing
  std::vector<double> warmer(2 * kWaveCells, 0.0);
  for (int day = 0; day < kDays; ++day) {
    const std::vector<float> midnight = wave_state(waves, 2, 24.0 * day),
                             noon = wave_state(waves, 2, 24.0 * day + 12.0);
    for (size_t i = 0; i < warmer.size(); ++i) {
      warmer[i] += (noon[i] - midnight[i]) / kDays;
    }
  }
  // In the tropics at 0 degrees, where UTC is the sun's time, and on the other side of the globe.
  double land = -1.0, greatest = 0.0, least = 0.0;
  for (int64_t row = 6; row <= 12; ++row) {
    for (int64_t column = 0; column < kWaveColumns; ++column) {
      const auto at = static_cast<size_t>(row * kWaveColumns + column);
      const double hour = std::cos(2.0 * std::numbers::pi * static_cast<double>(column) / kWaveColumns);
      if (std::fabs(hour) > 0.9 && waves.land_sea_mask()[at] > 0.9F) {
        CHECK(warmer[at] * hour > 4.0);
        CHECK(std::fabs(warmer[kWaveCells + at]) < 1.0);  // at 500 hPa the day is not felt
        land = 1.0;
      }
      greatest = std::max(greatest, warmer[at]);
      least = std::min(least, warmer[at]);
    }
  }
  CHECK(land > 0.0);
  CHECK(greatest < 12.0);
  CHECK(least > -12.0);
}
