// Channels from a state at the centres of the cells, and the steps from one sample to the next.
#include "data/generate/shallow_water_weather.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "data/generate/generate_weather.h"
#include "src/base/error.h"
#include "src/base/random.h"
#include "src/base/text.h"

namespace vit_hybrid::data {

namespace {

struct Channel {
  const char* name;
  const char* unit;
};
constexpr std::array<Channel, 7> kBase{{{"u", "m/s"},
                                        {"v", "m/s"},
                                        {"height", "m"},
                                        {"vorticity", "1/s"},
                                        {"divergence", "1/s"},
                                        {"potential_vorticity", "1/(m s)"},
                                        {"kinetic_energy", "m^2/s^2"}}};
constexpr auto kNumBase = static_cast<int64_t>(kBase.size());

/// Writes value(j, i) of every cell, northernmost row first.
template <class Value>
void write_cells(const CGrid& grid, float* to, const Value& value) {
  for_each_row(grid.rows(), grid.columns(), [&](int64_t j) {
    float* row = to + (grid.rows() - 1 - j) * grid.columns();
    for (int64_t i = 0; i < grid.columns(); ++i) {
      row[i] = static_cast<float>(value(j, i));
    }
  });
}

void write_centres(const CGrid& grid, const PeriodicField& field, float* to) {
  write_cells(grid, to, [&](int64_t j, int64_t i) { return field.at(j, i); });
}

void write_corners(const CGrid& grid, const PeriodicField& field, float* to) {
  write_cells(grid, to, [&](int64_t j, int64_t i) {
    return 0.25 * (field.at(j, i) + field.at(j, i + 1) + field.at(j + 1, i) + field.at(j + 1, i + 1));
  });
}

void write_base_channel(const CGrid& grid, const ShallowWaterState& state, int64_t channel, PeriodicField& scratch,
                        float* to) {
  switch (channel) {
    case 0:
      return write_cells(grid, to,
                         [&](int64_t j, int64_t i) { return 0.5 * (state.u().at(j, i) + state.u().at(j, i + 1)); });
    case 1:
      return write_cells(grid, to,
                         [&](int64_t j, int64_t i) { return 0.5 * (state.v().at(j, i) + state.v().at(j + 1, i)); });
    case 2:
      return write_centres(grid, state.h(), to);
    case 3:
      grid.vorticity(state, scratch);
      return write_corners(grid, scratch, to);
    case 4:
      grid.divergence(state, scratch);
      return write_centres(grid, scratch, to);
    case 5:
      grid.potential_vorticity(state, scratch);
      return write_corners(grid, scratch, to);
    default:
      grid.kinetic_energy(state, scratch);
      return write_centres(grid, scratch, to);
  }
}

}  // namespace

WeatherChannels::WeatherChannels(int64_t count) {
  for (int64_t channel = 0; channel < count; ++channel) {
    const bool base = channel < kNumBase;
    names_.push_back(base ? kBase[static_cast<size_t>(channel)].name : str("tracer_", channel - kNumBase + 1));
    units_.push_back(base ? kBase[static_cast<size_t>(channel)].unit : "1");
  }
}

int64_t WeatherChannels::num_tracers() const {
  return std::max<int64_t>(count() - kNumBase, 0);
}

void WeatherChannels::sample(const CGrid& grid, const ShallowWaterState& state, float* to) const {
  PeriodicField scratch = grid.make_field();
  for (int64_t channel = 0; channel < count(); ++channel) {
    float* field = to + channel * grid.rows() * grid.columns();
    if (channel < kNumBase) {
      write_base_channel(grid, state, channel, scratch, field);
    } else {
      grid.tracer(state, channel - kNumBase, scratch);
      write_centres(grid, scratch, field);
    }
  }
}

namespace {

constexpr double kSecondsPerHour = 3600.0;

int64_t rounded_up(double value) {
  return static_cast<int64_t>(std::ceil(value));
}

RandomStream year_stream(uint64_t seed, int64_t year) {
  return {seed, Purpose::kSyntheticData, name_key("weather"), static_cast<uint64_t>(year)};
}

}  // namespace

WeatherYear::WeatherYear(const GenerateWeatherOptions& options, int64_t year)
    : year_(year),
      channels_(options.channels),
      model_(planet_plane(options.height, options.width), channels_.num_tracers()),
      driving_(model_.grid(), planet_driving(model_.grid(), channels_.num_tracers()), channels_.num_tracers()),
      state_(planet_initial_state(model_.grid(), driving_.options(), year_stream(options.seed, year),
                                  channels_.num_tracers())) {
  const double interval = options.sample_interval_hours * kSecondsPerHour;
  const double longest = std::min(model_.stable_time_step(), driving_.stable_time_step());
  steps_per_sample_ = rounded_up(interval / longest);
  time_step_ = interval / static_cast<double>(steps_per_sample_);
}

void WeatherYear::advance() {
  for (int64_t step = 0; step < steps_per_sample_; ++step) {
    model_.step(state_, time_step_);
    driving_.apply(state_, time_step_);
  }
  for (const PeriodicField& field : state_.fields) {
    if (!std::isfinite(field.sum())) {
      throw Error(ErrorClass::kInternal,
                  str("the generated weather of year ", year_, " blew up (time step ", time_step_, " s)"),
                  "this is a defect of the generator, please report it with your options");
    }
  }
}

void WeatherYear::next_sample(float* to) {
  advance();
  channels_.sample(model_.grid(), state_, to);
}

}  // namespace vit_hybrid::data
