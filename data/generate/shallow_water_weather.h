// The weather of a shallow-water flow: the planet, its mountains and jets, and what drives its flow; WeatherChannels:
// the physical fields of a flow; WeatherYear: a year of them, sample by sample.
//
// The planet is a doubly periodic plane with a Coriolis parameter that varies smoothly with latitude, not a sphere:
// there the scheme of shallow_water.h conserves mass exactly and energy up to the time step, at any resolution, without
// polar filters.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/generate/c_grid.h"
#include "data/generate/shallow_water.h"
#include "src/base/random.h"

namespace vit_hybrid::data {

/// Times are in seconds; a time of 0 switches its term off.
struct DrivingOptions {
  double wind_relaxation_time = 0.0;          ///< t_r
  std::vector<double> jet;                    ///< u_jet of each row, m/s (v_jet is 0)
  double tracer_relaxation_time = 0.0;        ///< t_c
  std::vector<PeriodicField> tracer_sources;  ///< c_source of each tracer
  double damping_time = 0.0;                  ///< 1 / (nu del^4) of the shortest wave that the grid holds
};

/// The driving of one flow. Holds workspaces: one object serves one integration at a time.
class FlowDriving {
 public:
  /// Error(kInternal) if a term that is on lacks its jet or sources.
  FlowDriving(const CGrid& grid, DrivingOptions options, int64_t num_tracers);

  const DrivingOptions& options() const { return options_; }
  /// Longest step for which apply() damps without overshooting, s (infinity where all terms are off).
  double stable_time_step() const;
  /// Adds `dt` seconds of driving to `state`, halos up to date before and after.
  void apply(ShallowWaterState& state, double dt);

 private:
  void relax_wind(ShallowWaterState& state, double dt) const;
  void relax_tracer(ShallowWaterState& state, int64_t k, double dt) const;
  /// field -= coefficient * del^4 damped
  void damp(const PeriodicField& damped, double coefficient, PeriodicField& field);
  /// result = keep * result + weight * del^2 field
  void add_laplacian(const PeriodicField& field, double weight, double keep, PeriodicField& result) const;

  CGrid grid_;
  DrivingOptions options_;
  double viscosity_ = 0.0;  // nu, m^4/s
  PeriodicField laplacian_, ratio_;
};

/// 12,000 km x 6,000 km, 1,000 m deep, f from 0.8e-4 to 1.2e-4 1/s: gravity waves travel at 99 m/s and the deformation
/// radius is 1,000 km, whatever the number of cells.
Plane planet_plane(int64_t rows, int64_t columns);

/// Two westerly and two easterly jets, unstable by Rayleigh's criterion, so that eddies never die out; for each tracer
/// a pattern of sources with values in [0, 1]; damping of the shortest waves.
DrivingOptions planet_driving(const CGrid& grid, int64_t num_tracers);

/// The jets with waves of random phase and amplitude on them, without divergence, the depth in geostrophic balance and
/// the tracers at their sources; halos up to date. The draws belong to wave numbers, not to cells: every resolution
/// that holds the waves starts from the same flow.
ShallowWaterState planet_initial_state(const CGrid& grid, const DrivingOptions& driving, const RandomStream& random,
                                       int64_t num_tracers);

struct GenerateWeatherOptions;

/// The first `count` of: u, v (wind, m/s), height (m), vorticity, divergence (1/s), potential_vorticity (1/(m s)),
/// kinetic_energy (m^2/s^2), then tracer_1, tracer_2, ... (mixing ratios in [0, 1] at their sources).
class WeatherChannels {
 public:
  explicit WeatherChannels(int64_t count);

  int64_t count() const { return static_cast<int64_t>(names_.size()); }
  const std::vector<std::string>& names() const { return names_; }
  const std::vector<std::string>& units() const { return units_; }
  /// Tracers that the model must carry for these channels.
  int64_t num_tracers() const;
  /// Writes [count, rows, columns] floats: every channel at the centres of the cells, corner and face values averaged
  /// to them, the northernmost row first as in ERA5. Halos of `state` are up to date.
  void sample(const CGrid& grid, const ShallowWaterState& state, float* to) const;

 private:
  std::vector<std::string> names_;
  std::vector<std::string> units_;
};

/// The integration of one year. Its samples depend on the options and the year alone.
class WeatherYear {
 public:
  WeatherYear(const GenerateWeatherOptions& options, int64_t year);

  /// Advances by one sample interval. Error(kInternal) if the flow is not finite any more.
  void advance();
  /// Advances, and writes [C, H, W] floats.
  void next_sample(float* to);

 private:
  int64_t year_;
  WeatherChannels channels_;
  ShallowWater model_;
  FlowDriving driving_;
  ShallowWaterState state_;
  int64_t steps_per_sample_;
  double time_step_;
};

}  // namespace vit_hybrid::data
