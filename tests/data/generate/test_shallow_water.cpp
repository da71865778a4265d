// The shallow-water scheme: what it conserves, and the order of its time integration.
#include <doctest/doctest.h>
#include <omp.h>

#include <cmath>

#include "data/generate/shallow_water.h"
#include "data/generate/shallow_water_weather.h"

using namespace vit_hybrid;
using namespace vit_hybrid::data;

namespace {

// Cells that are not square, more columns than rows, f not constant.
Plane rough_plane() {
  Plane plane;
  plane.rows = 12;
  plane.columns = 17;
  return plane;
}

// Sums over the plane, times the area of a cell, that the scheme of ShallowWater conserves.
struct Invariants {
  double mass = 0.0;                 ///< of h, m^3
  double energy = 0.0;               ///< of h (u^2 + v^2) / 2 + g h^2 / 2, m^5/s^2
  double potential_enstrophy = 0.0;  ///< of h q^2 / 2, m/s^2
};

Invariants invariants(const CGrid& grid, const ShallowWaterState& state) {
  PeriodicField energy = grid.make_field(), enstrophy = grid.make_field();
  grid.kinetic_energy(state, energy);
  grid.potential_vorticity(state, enstrophy);
  for (int64_t j = 0; j < grid.rows(); ++j) {
    const double *h = state.h().row(j), *h_south = state.h().row(j - 1);
    double *e = energy.row(j), *z = enstrophy.row(j);
    for (int64_t i = 0; i < grid.columns(); ++i) {
      e[i] = h[i] * e[i] + 0.5 * grid.plane().gravity * h[i] * h[i];
      z[i] = 0.125 * (h[i] + h[i - 1] + h_south[i] + h_south[i - 1]) * z[i] * z[i];
    }
  }
  const double area = grid.dx() * grid.dy();
  return {area * state.h().sum(), area * energy.sum(), area * enstrophy.sum()};
}

template <class Function>
void for_each_cell(const PeriodicField& field, const Function& function) {
  for (int64_t j = 0; j < field.rows(); ++j) {
    for (int64_t i = 0; i < field.columns(); ++i) {
      function(j, i);
    }
  }
}

// Noise at the scale of the cells, the hardest state for a discretisation.
ShallowWaterState rough_state(const CGrid& grid, int64_t num_tracers) {
  const RandomStream random(3, Purpose::kTest);
  uint64_t draw = 0;
  ShallowWaterState state(grid.rows(), grid.columns(), num_tracers);
  for_each_cell(state.h(), [&](int64_t j, int64_t i) {
    state.u().row(j)[i] = 20.0 * random.normal(draw++);
    state.v().row(j)[i] = 20.0 * random.normal(draw++);
    state.h().row(j)[i] = 1000.0 + 100.0 * random.normal(draw++);
    for (int64_t k = 0; k < num_tracers; ++k) {
      state.tracer_mass(k).row(j)[i] = state.h().at(j, i) * random.uniform(draw++);
    }
  });
  state.wrap();
  return state;
}

ShallowWaterState moved(const ShallowWaterState& state, const ShallowWaterState& direction, double length) {
  ShallowWaterState result = state;
  for (size_t k = 0; k < state.fields.size(); ++k) {
    for_each_cell(state.fields[k],
                  [&](int64_t j, int64_t i) { result.fields[k].row(j)[i] += length * direction.fields[k].at(j, i); });
  }
  result.wrap();
  return result;
}

// d(ln measure)/dt along the tendency of `state`, by a central difference over `seconds`.
template <class Measure>
double relative_rate(ShallowWater& model, const ShallowWaterState& state, double seconds, const Measure& measure) {
  ShallowWaterState tendency = state;
  model.tendency(state, tendency);
  const double after = measure(moved(state, tendency, seconds)), before = measure(moved(state, tendency, -seconds));
  return (after - before) / (2.0 * seconds * measure(state));
}

double tracer_square(const ShallowWaterState& state) {
  double sum = 0.0;
  for_each_cell(state.h(), [&](int64_t j, int64_t i) {
    sum += state.tracer_mass(0).at(j, i) * state.tracer_mass(0).at(j, i) / state.h().at(j, i);
  });
  return sum;
}

// The state after `hours`, from the planet's initial state without driving, and how the invariants moved.
struct Integration {
  ShallowWaterState state;
  double energy_error;
  double enstrophy_error;
  double mass_error;
  double tracer_error;
};

Integration integrate(int64_t steps, double hours) {
  ShallowWater model(planet_plane(16, 32), 1);
  const CGrid& grid = model.grid();
  const DrivingOptions driving = planet_driving(grid, 1);
  ShallowWaterState state = planet_initial_state(grid, driving, RandomStream(5, Purpose::kTest), 1);
  const Invariants start = invariants(grid, state);
  const double tracer_start = state.tracer_mass(0).sum();
  for (int64_t step = 0; step < steps; ++step) {
    model.step(state, hours * 3600.0 / static_cast<double>(steps));
  }
  const Invariants end = invariants(grid, state);
  return {state, end.energy / start.energy - 1.0, end.potential_enstrophy / start.potential_enstrophy - 1.0,
          end.mass / start.mass - 1.0, state.tracer_mass(0).sum() / tracer_start - 1.0};
}

double largest_difference(const PeriodicField& a, const PeriodicField& b) {
  double largest = 0.0;
  for_each_cell(a, [&](int64_t j, int64_t i) { largest = std::fmax(largest, std::fabs(a.at(j, i) - b.at(j, i))); });
  return largest;
}

}  // namespace

TEST_CASE("shallow water: mass, energy and potential enstrophy are exactly conserved in continuous time") {
  ShallowWater model(rough_plane(), 1);
  const CGrid& grid = model.grid();
  const ShallowWaterState state = rough_state(grid, 1);
  // A wrong sign or a missing ratio of the cells' sides moves these by 1e-8 to 1e-5 a second. The differences below are
  // exact up to their third derivative and rounding.
  CHECK(std::fabs(relative_rate(model, state, 1.0, [&](const auto& s) { return invariants(grid, s).mass; })) < 1e-14);
  CHECK(std::fabs(relative_rate(model, state, 1.0, [&](const auto& s) { return invariants(grid, s).energy; })) < 3e-14);
  CHECK(std::fabs(relative_rate(model, state, 1.0,
                                [&](const auto& s) { return invariants(grid, s).potential_enstrophy; })) < 3e-14);
  CHECK(std::fabs(relative_rate(model, state, 1.0, [](const auto& s) { return s.tracer_mass(0).sum(); })) < 1e-14);
  CHECK(std::fabs(relative_rate(model, state, 1.0, tracer_square)) < 3e-14);
}

TEST_CASE("shallow water: the drift of energy and enstrophy falls with the time step, and mass does not drift") {
  const Integration coarse = integrate(16, 6.0), fine = integrate(64, 6.0);
  CHECK(std::fabs(coarse.energy_error) < 1e-5);
  CHECK(std::fabs(fine.energy_error) > 1e-12);  // else the ratios would be ones of roundings
  CHECK(std::fabs(fine.enstrophy_error) > 1e-12);
  CHECK(std::fabs(coarse.energy_error / fine.energy_error) > std::pow(4.0, 3.8));
  CHECK(std::fabs(coarse.enstrophy_error / fine.enstrophy_error) > std::pow(4.0, 3.8));
  for (const Integration& run : {coarse, fine}) {
    CHECK(std::fabs(run.mass_error) < 1e-14);
    CHECK(std::fabs(run.tracer_error) < 1e-14);
  }
}

TEST_CASE("shallow water: the time integration is of fourth order") {
  const Integration reference = integrate(128, 6.0), coarse = integrate(16, 6.0), fine = integrate(32, 6.0);
  for (const size_t field : {0, 1, 2, 3}) {
    INFO("field ", field);
    const double ratio = largest_difference(coarse.state.fields[field], reference.state.fields[field]) /
                         largest_difference(fine.state.fields[field], reference.state.fields[field]);
    CHECK(ratio == doctest::Approx(16.0).epsilon(0.25));
  }
}

TEST_CASE("shallow water: the stable time step is stable, and is no fraction of what would be") {
  const ShallowWater model(planet_plane(16, 32), 0);
  const double step = model.stable_time_step();
  const auto energy_after = [](double dt) {
    ShallowWater run(planet_plane(16, 32), 0);
    ShallowWaterState state = rough_state(run.grid(), 0);
    for (int i = 0; i < 300; ++i) {
      run.step(state, dt);
    }
    return invariants(run.grid(), state).energy;
  };
  CHECK(energy_after(0.75 * step) < energy_after(0.0) * 1.0001);
  CHECK_FALSE(energy_after(2.0 * step) < energy_after(0.0) * 2.0);
}

TEST_CASE("shallow water: rest stays rest, to the bit") {
  ShallowWater model(rough_plane(), 1);
  ShallowWaterState state(12, 17, 1);
  for_each_cell(state.h(), [&](int64_t j, int64_t i) {
    state.h().row(j)[i] = 1234.5;
    state.tracer_mass(0).row(j)[i] = 0.25 * 1234.5;
  });
  state.wrap();
  const ShallowWaterState start = state;
  for (int step = 0; step < 10; ++step) {
    model.step(state, 600.0);
  }
  for (size_t k = 0; k < state.fields.size(); ++k) {
    CHECK(largest_difference(state.fields[k], start.fields[k]) == 0.0);
  }
}

TEST_CASE("shallow water: a constant tracer stays constant in a rough flow") {
  ShallowWater model(rough_plane(), 1);
  ShallowWaterState state = rough_state(model.grid(), 1);
  for_each_cell(state.h(), [&](int64_t j, int64_t i) { state.tracer_mass(0).row(j)[i] = 0.7 * state.h().at(j, i); });
  state.wrap();
  for (int step = 0; step < 20; ++step) {
    model.step(state, 300.0);
  }
  PeriodicField ratio = model.grid().make_field();
  model.grid().tracer(state, 0, ratio);
  for_each_cell(ratio, [&](int64_t j, int64_t i) { CHECK(std::fabs(ratio.at(j, i) - 0.7) < 1e-14); });
}

TEST_CASE("shallow water: the numbers do not depend on the number of threads") {
  const int threads = omp_get_max_threads();
  const auto run = [](int num_threads) {
    omp_set_num_threads(num_threads);
    ShallowWater model(planet_plane(192, 192), 1);  // large enough to be run by several
    const DrivingOptions options = planet_driving(model.grid(), 1);
    FlowDriving driving(model.grid(), options, 1);
    ShallowWaterState state = planet_initial_state(model.grid(), options, RandomStream(5, Purpose::kTest), 1);
    for (int step = 0; step < 3; ++step) {
      model.step(state, 60.0);
      driving.apply(state, 60.0);
    }
    return state;
  };
  const ShallowWaterState one = run(1), three = run(3);
  omp_set_num_threads(threads);
  for (size_t k = 0; k < one.fields.size(); ++k) {
    CHECK(largest_difference(one.fields[k], three.fields[k]) == 0.0);
  }
}
