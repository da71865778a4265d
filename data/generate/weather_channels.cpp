// WeatherChannels: the physical fields of generated weather, by channel, and how they are sampled from a state.
#include "data/generate/weather_channels.h"

#include <algorithm>
#include <array>

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

}  // namespace vit_hybrid::data
