// ShallowWater: the rotating shallow-water equations on a doubly periodic plane, with passive tracers.
//
// Equations (U = (u, v): wind; h: depth; c: mixing ratio of a tracer; k: the vertical; g: gravity):
//   dU/dt     = -q k x (h U) - grad(g h + (u^2 + v^2) / 2)
//   dh/dt     = -div(h U)
//   d(h c)/dt = -div(h U c)
//   q         = (f + dv/dx - du/dy) / h
// in the vector-invariant form of G. K. Vallis, Atmospheric and Oceanic Fluid Dynamics (2nd ed., 2017), chapter 3. f is
// periodic in y, as the plane is; where it rises with y the plane is a beta-plane.
//
// Space: A. Arakawa and V. R. Lamb, "A potential enstrophy and energy conserving scheme for the shallow water
// equations", Mon. Wea. Rev. 109 (1981) 18-36, sections 2 and 3. In continuous time it conserves mass, total energy and
// potential enstrophy exactly. Tracers move with the mass flux of the continuity equation and centred face values,
// which conserves the sums of h c and of h c^2 and keeps a constant tracer constant. Time: the classical fourth-order
// Runge-Kutta method.
#pragma once

#include <cstdint>

#include "data/generate/c_grid.h"

namespace vit_hybrid::data {

/// The equations on one grid. Holds workspaces: one object serves one integration at a time.
class ShallowWater {
 public:
  ShallowWater(const Plane& plane, int64_t num_tracers);

  const CGrid& grid() const { return grid_; }
  /// A time step that is stable while u^2 + g h stays below 2.5 g h_0, s.
  double stable_time_step() const;
  /// Advances `state`, halos up to date before and after, by one step of `dt` seconds.
  void step(ShallowWaterState& state, double dt);
  /// d(state)/dt into `result`; halos of `state` are up to date, those of `result` are not renewed.
  void tendency(const ShallowWaterState& state, ShallowWaterState& result);

 private:
  /// Calls done(k, j, slope of field k in row j) for all rows, on several threads; each slope is made in target(k, j,
  /// memory that is free until the next).
  template <class Target, class Done>
  void for_each_slope(const ShallowWaterState& state, const Target& target, const Done& done);

  CGrid grid_;
  ShallowWaterState stage_, next_stage_, sum_;  // of the Runge-Kutta method
};

}  // namespace vit_hybrid::data
