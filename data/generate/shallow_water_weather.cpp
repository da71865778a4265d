// Mountains and jets as functions of the seed, relaxation and damping of the flow; channels from a state at the centres
// of the cells, and the steps from one sample to the next.
#include "data/generate/shallow_water_weather.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <limits>
#include <numbers>
#include <utility>

#include "data/generate/generate_weather.h"
#include "src/base/error.h"
#include "src/base/random.h"
#include "src/base/text.h"

namespace vit_hybrid::data {

namespace {
double square(double x) {
  return x * x;
}

constexpr double kTwoPi = 2.0 * std::numbers::pi;
constexpr double kHour = 3600.0;
constexpr double kDay = 24.0 * kHour;

constexpr double kJetSpeed = 45.0;  // m/s, of the jets that the wind relaxes to; the eddies hold it at some 30
constexpr int64_t kNumJets = 2;     // pairs of a westerly and an easterly jet
constexpr double kWindRelaxationTime = 8.0 * kDay;
constexpr double kTracerRelaxationTime = 10.0 * kDay;
constexpr double kDampingTime = 3.0 * kHour;
constexpr double kEddySpeed = 12.0;        // m/s, root mean square of the initial perturbation
constexpr double kEddyLength = 0.63e6;     // m, inverse wave number beyond which the perturbation is steeper
constexpr int64_t kLargestWaveNumber = 6;  // of the perturbation, along x and along y

/// A wave cos(2 pi (m x / L_x + n y / L_y) + phase).
struct Wave {
  int64_t m;
  int64_t n;
  double amplitude;
  double phase;
};

/// field += the wave, at the points (row + offset, column + offset).
void add_wave(const Wave& wave, double offset, PeriodicField& field) {
  const double per_column = static_cast<double>(wave.m) / static_cast<double>(field.columns());
  const double per_row = static_cast<double>(wave.n) / static_cast<double>(field.rows());
  for_each_row(field.rows(), field.columns(), [&](int64_t j) {
    const double row_turns = per_row * (static_cast<double>(j) + offset);
    double* values = field.row(j);
    for (int64_t i = 0; i < field.columns(); ++i) {
      const double turns = row_turns + per_column * (static_cast<double>(i) + offset);
      values[i] += wave.amplitude * std::cos(kTwoPi * turns + wave.phase);
    }
  });
}

/// Wave of the stream function of the jets: u = -d(psi)/dy is kJetSpeed sin(2 pi kNumJets y / L_y).
Wave jet_wave(const Plane& plane) {
  return {0, kNumJets, kJetSpeed * plane.length_y / (kTwoPi * static_cast<double>(kNumJets)), 0.0};
}

/// The waves of the perturbation's stream function, scaled to kEddySpeed over those that the grid holds.
std::vector<Wave> eddy_waves(const Plane& plane, const RandomStream& random) {
  const int64_t largest_m = std::min(kLargestWaveNumber, plane.columns / 3);
  const int64_t largest_n = std::min(kLargestWaveNumber, plane.rows / 3);
  std::vector<Wave> waves;
  double speed_squared = 0.0;
  for (int64_t m = 0; m <= largest_m; ++m) {
    for (int64_t n = m == 0 ? 1 : -largest_n; n <= largest_n; ++n) {
      const auto index = static_cast<uint64_t>(m * (2 * kLargestWaveNumber + 1) + n + kLargestWaveNumber);
      const double k2 = std::pow(kTwoPi * static_cast<double>(m) / plane.length_x, 2) +
                        std::pow(kTwoPi * static_cast<double>(n) / plane.length_y, 2);
      const double amplitude = random.normal(index, 0) / (k2 * (1.0 + k2 * kEddyLength * kEddyLength));
      waves.push_back({m, n, amplitude, kTwoPi * random.uniform(index, 1)});
      speed_squared += 0.5 * amplitude * amplitude * k2;
    }
  }
  for (Wave& wave : waves) {
    wave.amplitude *= kEddySpeed / std::sqrt(speed_squared);
  }
  return waves;
}

/// The source patterns of `num_tracers` tracers: waves that the grid holds well, the longest first; once all have been
/// used, the same ones again at another phase.
std::vector<Wave> source_waves(const CGrid& grid, int64_t num_tracers) {
  constexpr double kPhaseStep = 0.5 * std::numbers::pi;  // the second time: sines for cosines
  const int64_t largest_m = std::min<int64_t>(4, grid.columns() / 4);
  const int64_t largest_n = std::min<int64_t>(4, grid.rows() / 4);
  std::vector<Wave> waves;
  for (int64_t m = 0; m <= largest_m; ++m) {
    for (int64_t n = m == 0 ? 1 : -largest_n; n <= largest_n; ++n) {
      waves.push_back({m, n, 0.5, 0.0});
    }
  }
  std::stable_sort(waves.begin(), waves.end(),
                   [](const Wave& a, const Wave& b) { return a.m * a.m + a.n * a.n < b.m * b.m + b.n * b.n; });
  for (size_t i = 0; std::ssize(waves) < num_tracers; ++i) {
    Wave wave = waves[i];
    wave.phase += kPhaseStep;
    waves.push_back(wave);
  }
  waves.resize(static_cast<size_t>(num_tracers));
  return waves;
}

}  // namespace

FlowDriving::FlowDriving(const CGrid& grid, DrivingOptions options, int64_t num_tracers)
    : grid_(grid), options_(std::move(options)), laplacian_(grid.make_field()), ratio_(grid.make_field()) {
  VH_ASSERT(options_.wind_relaxation_time == 0.0 || std::ssize(options_.jet) == grid.rows(),
            "the jet has a speed for each row");
  VH_ASSERT(options_.tracer_relaxation_time == 0.0 || std::ssize(options_.tracer_sources) == num_tracers,
            "every tracer has a source");
  if (options_.damping_time > 0.0) {
    const double shortest = 4.0 / square(grid.dx()) + 4.0 / square(grid.dy());  // its -del^2
    viscosity_ = 1.0 / (options_.damping_time * square(shortest));
  }
}

double FlowDriving::stable_time_step() const {
  double step = std::numeric_limits<double>::infinity();
  for (const double time : {options_.wind_relaxation_time, options_.tracer_relaxation_time, options_.damping_time}) {
    if (time > 0.0) step = std::min(step, time);
  }
  return step;
}

void FlowDriving::apply(ShallowWaterState& state, double dt) {
  if (viscosity_ > 0.0) {
    damp(state.u(), dt * viscosity_, state.u());
    damp(state.v(), dt * viscosity_, state.v());
    for (int64_t k = 0; k < state.num_tracers(); ++k) {
      grid_.tracer(state, k, ratio_);
      damp(ratio_, dt * viscosity_ * grid_.plane().mean_depth, state.tracer_mass(k));
    }
  }
  if (options_.wind_relaxation_time > 0.0) relax_wind(state, dt);
  if (options_.tracer_relaxation_time > 0.0) {
    for (int64_t k = 0; k < state.num_tracers(); ++k) {
      relax_tracer(state, k, dt);
    }
  }
  state.wrap();
}

void FlowDriving::relax_wind(ShallowWaterState& state, double dt) const {
  const double part = dt / options_.wind_relaxation_time;
  for_each_row(grid_.rows(), grid_.columns(), [&](int64_t j) {
    const double jet = options_.jet[static_cast<size_t>(j)];
    rows::relax_wind(grid_.columns(), part, jet, state.u().row(j), state.v().row(j));
  });
}

void FlowDriving::relax_tracer(ShallowWaterState& state, int64_t k, double dt) const {
  const double part = dt / options_.tracer_relaxation_time;
  for_each_row(grid_.rows(), grid_.columns(), [&](int64_t j) {
    const double* source = options_.tracer_sources[static_cast<size_t>(k)].row(j);
    rows::relax_tracer(grid_.columns(), part, source, state.h().row(j), state.tracer_mass(k).row(j));
  });
}

void FlowDriving::damp(const PeriodicField& damped, double coefficient, PeriodicField& field) {
  add_laplacian(damped, 1.0, 0.0, laplacian_);
  laplacian_.wrap();
  add_laplacian(laplacian_, -coefficient, 1.0, field);
}

void FlowDriving::add_laplacian(const PeriodicField& field, double weight, double keep, PeriodicField& result) const {
  const double x_weight = weight / square(grid_.dx()), y_weight = weight / square(grid_.dy());
  for_each_row(grid_.rows(), grid_.columns(), [&](int64_t j) {
    rows::add_laplacian(grid_.columns(), x_weight, y_weight, keep, field.row(j), field.row(j + 1), field.row(j - 1),
                        result.row(j));
  });
}

Plane planet_plane(int64_t rows, int64_t columns) {
  Plane plane;
  plane.rows = rows;
  plane.columns = columns;
  return plane;
}

DrivingOptions planet_driving(const CGrid& grid, int64_t num_tracers) {
  DrivingOptions driving;
  driving.wind_relaxation_time = kWindRelaxationTime;
  for (int64_t j = 0; j < grid.rows(); ++j) {
    const double turns = (static_cast<double>(j) + 0.5) / static_cast<double>(grid.rows());
    driving.jet.push_back(kJetSpeed * std::sin(kTwoPi * static_cast<double>(kNumJets) * turns));
  }
  driving.tracer_relaxation_time = kTracerRelaxationTime;
  for (const Wave& wave : source_waves(grid, num_tracers)) {
    PeriodicField source = grid.make_field();
    add_wave({0, 0, 0.5, 0.0}, 0.5, source);
    add_wave(wave, 0.5, source);
    driving.tracer_sources.push_back(std::move(source));
  }
  driving.damping_time = kDampingTime;
  return driving;
}

ShallowWaterState planet_initial_state(const CGrid& grid, const DrivingOptions& driving, const RandomStream& random,
                                       int64_t num_tracers) {
  PeriodicField psi = grid.make_field();  // stream function at the corners
  add_wave(jet_wave(grid.plane()), 0.0, psi);
  for (const Wave& wave : eddy_waves(grid.plane(), random)) {
    add_wave(wave, 0.0, psi);
  }
  psi.wrap();
  ShallowWaterState state(grid.rows(), grid.columns(), num_tracers);
  for (int64_t j = 0; j < grid.rows(); ++j) {
    const double *south = psi.row(j), *north = psi.row(j + 1);
    const double f_over_4g = grid.coriolis(j) / (4.0 * grid.plane().gravity);
    for (int64_t i = 0; i < grid.columns(); ++i) {
      state.u().row(j)[i] = -(north[i] - south[i]) / grid.dy();
      state.v().row(j)[i] = (south[i + 1] - south[i]) / grid.dx();
      state.h().row(j)[i] = f_over_4g * (south[i] + south[i + 1] + north[i] + north[i + 1]);
    }
  }
  const double cells = static_cast<double>(grid.rows() * grid.columns());
  const double missing_depth = grid.plane().mean_depth - state.h().sum() / cells;
  for (int64_t j = 0; j < grid.rows(); ++j) {
    double* h = state.h().row(j);
    for (int64_t i = 0; i < grid.columns(); ++i) {
      h[i] += missing_depth;
      for (int64_t k = 0; k < num_tracers; ++k) {
        state.tracer_mass(k).row(j)[i] = h[i] * driving.tracer_sources[static_cast<size_t>(k)].at(j, i);
      }
    }
  }
  state.wrap();
  return state;
}

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
