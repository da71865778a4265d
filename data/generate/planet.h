// The planet of the generated weather: its plane, its driving, and the keyed initial state of a year.
#pragma once

#include <cstdint>

#include "data/generate/flow_driving.h"
#include "src/base/random.h"

namespace vit_hybrid::data {

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

}  // namespace vit_hybrid::data
