// Generated weather: its channels, its climate, its statistics and what the years depend on.
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <numbers>

#include "data/generate/generate_weather.h"
#include "data/generate/shallow_water_weather.h"
#include "data/generate/weather_files.h"
#include "src/base/error.h"
#include "tests/support/compare.h"

using namespace vit_hybrid;
using namespace vit_hybrid::data;
using vit_hybrid::testing::relative_error;

namespace {

constexpr double kFullTurn = 2.0 * std::numbers::pi;

GenerateWeatherOptions small_options() {
  GenerateWeatherOptions options;
  options.height = 16;
  options.width = 32;
  options.channels = 4;
  options.steps_per_year = 40;
  return options;
}

std::string usage_message(const GenerateWeatherOptions& options) {
  try {
    check_options(options);
  } catch (const Error& error) {
    CHECK(error.error_class() == ErrorClass::kUsage);
    return error.message();
  }
  return "";
}

// Root mean square over samples, rows and columns, by channel.
at::Tensor rms(const at::Tensor& fields) {
  return fields.to(at::kDouble).square().mean({0, 2, 3}).sqrt();
}

}  // namespace

TEST_CASE("weather channels: names, units, and the values of a known flow, north first") {
  const WeatherChannels channels(9);
  CHECK(channels.names() == std::vector<std::string>{"u", "v", "height", "vorticity", "divergence",
                                                     "potential_vorticity", "kinetic_energy", "tracer_1", "tracer_2"});
  CHECK(channels.units().size() == 9);
  CHECK(channels.num_tracers() == 2);
  CHECK(WeatherChannels(3).num_tracers() == 0);

  const CGrid grid(planet_plane(64, 128));
  const int64_t rows = 64, columns = 128;
  const double k = kFullTurn / grid.plane().length_x;
  ShallowWaterState state(rows, columns, 2);
  for (int64_t j = 0; j < rows; ++j) {
    for (int64_t i = 0; i < columns; ++i) {
      const double x_face = k * static_cast<double>(i) * grid.dx(), x = x_face + 0.5 * k * grid.dx();
      state.u().row(j)[i] = 10.0 + 3.0 * std::sin(x_face);
      state.v().row(j)[i] = 7.0 * std::sin(x);
      state.h().row(j)[i] = 1000.0 + static_cast<double>(j);
      state.tracer_mass(1).row(j)[i] = state.h().at(j, i) * 0.25;
    }
  }
  state.wrap();
  const at::Tensor sample = at::empty({9, rows, columns});
  channels.sample(grid, state, sample.mutable_data_ptr<float>());
  const auto value = [&](int64_t channel, int64_t row, int64_t i) { return sample[channel][row][i].item<double>(); };
  for (const int64_t row : {1, 20, 62}) {  // away from the jump of h between the last row and the first
    for (const int64_t i : {0, 50, 127}) {
      INFO("row ", row, ", column ", i);
      const double x = k * (static_cast<double>(i) + 0.5) * grid.dx();
      const double u = 10.0 + 3.0 * std::sin(x), v = 7.0 * std::sin(x);
      const int64_t j = rows - 1 - row;
      const double h = 1000.0 + static_cast<double>(j), vorticity = 7.0 * k * std::cos(x);
      const double f = 1.0e-4 + 2.0e-5 * std::sin(kFullTurn * (static_cast<double>(j) + 0.5) / 64.0);
      CHECK(value(0, row, i) == doctest::Approx(u).epsilon(1e-3));
      CHECK(std::fabs(value(1, row, i) - v) < 0.007);
      CHECK(value(2, row, i) == doctest::Approx(h));
      CHECK(std::fabs(value(3, row, i) - vorticity) < 2e-3 * 7.0 * k);
      CHECK(std::fabs(value(4, row, i) - 3.0 * k * std::cos(x)) < 1e-3 * 3.0 * k);
      CHECK(value(5, row, i) == doctest::Approx((f + vorticity) / h).epsilon(1e-3));
      CHECK(value(6, row, i) == doctest::Approx(0.5 * (u * u + v * v)).epsilon(3e-3));
      CHECK(value(7, row, i) == 0.0);
      CHECK(value(8, row, i) == doctest::Approx(0.25));
    }
  }
}

TEST_CASE("weather: the initial flow has no divergence and the mean depth, and tracers lie in [0, 1]") {
  const CGrid grid(planet_plane(24, 48));
  const DrivingOptions driving = planet_driving(grid, 60);
  const ShallowWaterState state = planet_initial_state(grid, driving, RandomStream(1, Purpose::kTest), 60);
  PeriodicField divergence = grid.make_field(), vorticity = grid.make_field(), tracer = grid.make_field();
  grid.divergence(state, divergence);
  grid.vorticity(state, vorticity);
  CHECK(state.h().sum() / (24.0 * 48.0) == doctest::Approx(1000.0).epsilon(1e-12));
  double largest_vorticity = 0.0, largest_divergence = 0.0;
  for (int64_t j = 0; j < 24; ++j) {
    for (int64_t i = 0; i < 48; ++i) {
      largest_vorticity = std::fmax(largest_vorticity, std::fabs(vorticity.at(j, i)));
      largest_divergence = std::fmax(largest_divergence, std::fabs(divergence.at(j, i)));
    }
  }
  CHECK(largest_divergence < 1e-10 * largest_vorticity);
  for (int64_t k = 0; k < 60; ++k) {
    grid.tracer(state, k, tracer);
    double lowest = 1.0, highest = 0.0;
    for (int64_t j = 0; j < 24; ++j) {
      for (int64_t i = 0; i < 48; ++i) {
        lowest = std::fmin(lowest, tracer.at(j, i));
        highest = std::fmax(highest, tracer.at(j, i));
      }
    }
    INFO("tracer ", k);
    CHECK(lowest > -1e-12);
    CHECK(lowest < 0.2);
    CHECK(highest > 0.8);
    CHECK(highest < 1.0 + 1e-12);
  }
}

TEST_CASE("weather: a year keeps its mass and stays lively, and persistence is a fair forecast of it") {
  GenerateWeatherOptions options = small_options();
  options.height = 32;
  options.width = 64;
  options.steps_per_year = 120;
  const WeatherInMemory weather = generate_weather_in_memory(options);
  const at::Tensor height = weather.fields.select(1, 2).to(at::kDouble);
  CHECK(relative_error(height.mean({1, 2}), at::full({120}, 1000.0, at::kDouble)) < 1e-6);  // rounding to float
  const at::Tensor normal = (weather.fields - weather.means) / weather.stds;
  const at::Tensor persistence = rms(normal.slice(0, 1) - normal.slice(0, 0, -1));
  for (int64_t channel = 0; channel < 4; ++channel) {
    INFO("channel ", weather.channel_names[static_cast<size_t>(channel)]);
    CHECK(persistence[channel].item<double>() > 0.2);
    CHECK(persistence[channel].item<double>() < 0.7);
  }
  const at::Tensor wind = rms(weather.fields.slice(1, 0, 2));
  CHECK(wind[0].item<double>() > 8.0);  // m/s
  CHECK(wind[0].item<double>() < 20.0);
  const at::Tensor eddies = weather.fields.select(1, 1);
  CHECK(eddies.slice(0, 100).square().mean().sqrt().item<double>() > 4.0);  // they have not died out at the end
}

TEST_CASE("weather in memory: statistics are those of the fields") {
  const WeatherInMemory weather = generate_weather_in_memory(small_options());
  CHECK(weather.fields.sizes() == at::IntArrayRef({40, 4, 16, 32}));
  CHECK(weather.means.sizes() == at::IntArrayRef({1, 4, 1, 1}));
  CHECK(weather.time_means.sizes() == at::IntArrayRef({1, 4, 16, 32}));
  CHECK(weather.channel_names == std::vector<std::string>{"u", "v", "height", "vorticity"});
  const at::Tensor fields = weather.fields.to(at::kDouble);
  const at::Tensor stds = fields.std({0, 2, 3}, /*unbiased=*/false);
  for (int64_t channel = 0; channel < 4; ++channel) {
    const double mean = fields.select(1, channel).mean().item<double>(), std = stds[channel].item<double>();
    CHECK(std::fabs(weather.means[0][channel].item<double>() - mean) < 1e-6 * (std::fabs(mean) + std));
    CHECK(weather.stds[0][channel].item<double>() == doctest::Approx(std).epsilon(1e-6));
  }
  CHECK(relative_error(weather.time_means[0], fields.mean(0)) < 1e-6);
}

TEST_CASE("weather in memory: a year is a function of the seed, its number and the options") {
  const GenerateWeatherOptions options = small_options();
  const at::Tensor fields = generate_weather_in_memory(options).fields;
  CHECK(at::equal(fields, generate_weather_in_memory(options).fields));
  GenerateWeatherOptions other_seed = options, other_year = options, longer = options, with_tracers = options;
  other_seed.seed = 1;
  other_year.first_year += 1;
  longer.steps_per_year = 50;
  with_tracers.channels = 9;
  for (const auto& changed : {other_seed, other_year}) {
    CHECK(relative_error(generate_weather_in_memory(changed).fields.select(1, 1), fields.select(1, 1)) > 0.1);
  }
  CHECK(at::equal(generate_weather_in_memory(longer).fields.slice(0, 0, 40), fields));
  CHECK(at::equal(generate_weather_in_memory(with_tracers).fields.slice(1, 0, 4), fields));
}

TEST_CASE("weather: every option out of its range is named, with what is allowed") {
  GenerateWeatherOptions options = small_options();
  CHECK(usage_message(options).empty());
  options.channels = 0;
  options.height = 7;
  options.sample_interval_hours = std::numeric_limits<double>::quiet_NaN();
  const std::string text = usage_message(options);
  CHECK(text.find("channels is 0, allowed is 1 to 256") != std::string::npos);
  CHECK(text.find("height is 7, allowed is 8 to 16384") != std::string::npos);
  CHECK(text.find("sample_interval_hours is nan, allowed is 0.25 to 240") != std::string::npos);
  CHECK(text.find("width") == std::string::npos);
  options = small_options();
  options.first_year = 9998;
  CHECK(usage_message(options).find("the last year is 10002") != std::string::npos);
  options = small_options();
  options.channels = 256;
  options.height = options.width = 16384;
  options.steps_per_year = 1000000;
  CHECK(usage_message(options).find("number of bytes") != std::string::npos);
}

TEST_CASE("field statistics: merged parts are the whole") {
  const RandomStream random(2, Purpose::kTest);
  const int64_t channels = 2, cells = 5;
  FieldStatistics whole(channels, 1, cells), first(channels, 1, cells), second(channels, 1, cells),
      sent(channels, 1, cells);
  const at::Tensor samples = at::empty({7, channels, cells});
  for (int64_t i = 0; i < samples.numel(); ++i) {
    samples.mutable_data_ptr<float>()[i] = static_cast<float>(1e4 + random.normal(static_cast<uint64_t>(i)));
  }
  for (int64_t t = 0; t < 7; ++t) {
    const float* sample = samples[t].const_data_ptr<float>();
    whole.add(sample);
    (t < 3 ? first : second).add(sample);
  }
  sent.unpack(second.pack());
  first.merge(sent);
  first.merge(FieldStatistics(channels, 1, cells));  // nothing changes nothing
  const at::Tensor exact = samples.to(at::kDouble);
  CHECK(first.num_samples() == 7);
  for (int64_t channel = 0; channel < channels; ++channel) {
    const at::Tensor values = exact.select(1, channel);
    for (const FieldStatistics* statistics : {&whole, &first}) {
      CHECK(statistics->mean(channel) == doctest::Approx(values.mean().item<double>()).epsilon(1e-14));
      CHECK(statistics->deviation(channel) == doctest::Approx(values.std(false).item<double>()).epsilon(1e-10));
      CHECK(statistics->time_mean(channel * cells + 3) ==
            doctest::Approx(values.select(1, 3).mean().item<double>()).epsilon(1e-14));
    }
  }
}
