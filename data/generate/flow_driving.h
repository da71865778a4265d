// FlowDriving: what keeps a long integration turbulent and smooth: relaxation to jets and sources, and scale-selective
// damping.
//
//   dU/dt = (U_jet - U) / t_r - nu del^4 U        d(h c)/dt = h (c_source - c) / t_c - nu h_0 del^4 c
//
// It changes neither the mass nor a tracer that is constant like its source. These terms are weak, and they are applied
// once after a step of ShallowWater, by Euler's method.
#pragma once

#include <cstdint>
#include <vector>

#include "data/generate/c_grid.h"

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

}  // namespace vit_hybrid::data
