// FlowDriving: relaxation and damping of the flow.
#include "data/generate/flow_driving.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "data/generate/row_kernels.h"
#include "src/base/error.h"

namespace vit_hybrid::data {

namespace {
double square(double x) {
  return x * x;
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

}  // namespace vit_hybrid::data
