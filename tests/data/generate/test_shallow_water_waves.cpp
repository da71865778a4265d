// The shallow-water scheme against closed forms: waves, balance, advection, and the driving of the flow.
#include <doctest/doctest.h>

#include <cmath>
#include <complex>
#include <numbers>

#include "data/generate/shallow_water.h"
#include "data/generate/shallow_water_weather.h"

using namespace vit_hybrid;
using namespace vit_hybrid::data;

namespace {

constexpr double kTwoPi = 2.0 * std::numbers::pi;

// A plane without variation of f, 8,000 km wide and long.
Plane plane_of(int64_t rows, int64_t columns, double coriolis) {
  Plane plane;
  plane.rows = rows;
  plane.columns = columns;
  plane.length_x = plane.length_y = 8.0e6;
  plane.coriolis_mean = coriolis;
  plane.coriolis_variation = 0.0;
  return plane;
}

// Calls `cell(j, i, x, y)` for every cell with its number of turns around the plane at the centre.
template <class Cell>
void for_each_centre(const Plane& plane, const Cell& cell) {
  for (int64_t j = 0; j < plane.rows; ++j) {
    for (int64_t i = 0; i < plane.columns; ++i) {
      cell(j, i, (static_cast<double>(i) + 0.5) / static_cast<double>(plane.columns),
           (static_cast<double>(j) + 0.5) / static_cast<double>(plane.rows));
    }
  }
}

enum class Direction { kX, kY };

// Amplitude and phase of the wave exp(i k x), k of one turn, in h.
std::complex<double> wave_part(const Plane& plane, const PeriodicField& field, Direction direction) {
  std::complex<double> sum = 0.0;
  for_each_centre(plane, [&](int64_t j, int64_t i, double x, double y) {
    sum += field.at(j, i) * std::polar(1.0, -kTwoPi * (direction == Direction::kX ? x : y));
  });
  return sum;
}

struct WaveRun {
  double frequency;         // measured, 1/s
  double amplitude_change;  // relative
};

// Follows the wave h = h_0 + a cos(k x - w t), of one turn along `direction` over `cells` cells, for a tenth of its
// period; u and v start as those of the exact solution of the linear equations, w^2 = f^2 + g h_0 k^2: J. Pedlosky,
// Geophysical Fluid Dynamics (2nd ed., 1987), section 3.9.
WaveRun follow_wave(int64_t cells, double coriolis, Direction direction) {
  const bool along_x = direction == Direction::kX;
  const Plane plane = plane_of(along_x ? 4 : cells, along_x ? cells : 4, coriolis);
  ShallowWater model(plane, 0);
  const double k = kTwoPi / 8.0e6, depth = plane.mean_depth, amplitude = 1e-4;
  const double exact = std::hypot(coriolis, k * std::sqrt(plane.gravity * depth));
  const double along = amplitude * exact / (k * depth), across = amplitude * coriolis / (k * depth);
  ShallowWaterState state(plane.rows, plane.columns, 0);
  for_each_centre(plane, [&](int64_t j, int64_t i, double x, double y) {
    const double centre = kTwoPi * (along_x ? x : y);
    const double face = centre - 0.5 * kTwoPi / static_cast<double>(cells);
    state.h().row(j)[i] = depth + amplitude * std::cos(centre);
    (along_x ? state.u() : state.v()).row(j)[i] = along * std::cos(face);
    (along_x ? state.v() : state.u()).row(j)[i] = (along_x ? across : -across) * std::sin(centre);
  });
  state.wrap();
  const std::complex<double> start = wave_part(plane, state.h(), direction);
  const double time = 0.1 * kTwoPi / exact;
  constexpr int kSteps = 200;
  for (int step = 0; step < kSteps; ++step) {
    model.step(state, time / kSteps);
  }
  const std::complex<double> change = wave_part(plane, state.h(), direction) / start;
  return {-std::arg(change) / time, std::abs(change) - 1.0};
}

}  // namespace

TEST_CASE("shallow water: gravity waves have the frequency of the C-grid, in both directions") {
  // Without rotation the grid's own frequency is known: (2 c / dx) sin(k dx / 2).
  for (const Direction direction : {Direction::kX, Direction::kY}) {
    for (const int64_t cells : {12, 24, 48}) {
      INFO("cells ", cells);
      const double dx = 8.0e6 / static_cast<double>(cells), speed = std::sqrt(9.80665 * 1000.0);
      const double expected = 2.0 * speed / dx * std::sin(0.5 * kTwoPi / static_cast<double>(cells));
      // u / h of a travelling wave is sqrt(g / h_0) on the grid as in the continuum, so that the start is one wave.
      const WaveRun run = follow_wave(cells, 0.0, direction);
      CHECK(run.frequency == doctest::Approx(expected).epsilon(1e-6));
      CHECK(std::fabs(run.amplitude_change) < 1e-6);
    }
  }
}

TEST_CASE("shallow water: inertia-gravity waves converge to their exact frequency at second order") {
  for (const Direction direction : {Direction::kX, Direction::kY}) {
    const double coriolis = 1.0e-4;
    const double exact = std::hypot(coriolis, kTwoPi / 8.0e6 * std::sqrt(9.80665 * 1000.0));
    const double coarse = follow_wave(16, coriolis, direction).frequency - exact;
    const double fine = follow_wave(32, coriolis, direction).frequency - exact;
    CHECK(std::fabs(coarse) < 0.01 * exact);
    CHECK(coarse / fine == doctest::Approx(4.0).epsilon(0.05));
  }
}

TEST_CASE("shallow water: a zonal flow in geostrophic balance stays, to second order in the cell") {
  // Any u(y) with f u = -g dh/dy is a steady solution of the full equations.
  const auto departure = [](int64_t rows) {
    const Plane plane = plane_of(rows, 4, 1.0e-4);
    ShallowWater model(plane, 0);
    const double k = 2.0 * kTwoPi / plane.length_y, speed = 30.0;
    ShallowWaterState state(plane.rows, plane.columns, 0);
    for_each_centre(plane, [&](int64_t j, int64_t i, double, double y) {
      state.u().row(j)[i] = speed * std::sin(2.0 * kTwoPi * y);
      state.h().row(j)[i] = 1000.0 + plane.coriolis_mean * speed / (plane.gravity * k) * std::cos(2.0 * kTwoPi * y);
    });
    state.wrap();
    const ShallowWaterState start = state;
    for (int step = 0; step < 300; ++step) {
      model.step(state, 72.0);  // 6 hours in all
    }
    double largest = 0.0;
    for_each_centre(plane, [&](int64_t j, int64_t i, double, double) {
      largest = std::fmax(largest, std::fabs(state.u().at(j, i) - start.u().at(j, i)));
      largest = std::fmax(largest, std::fabs(state.v().at(j, i)));
    });
    return largest;
  };
  const double coarse = departure(24), fine = departure(48);
  CHECK(coarse < 0.05 * 30.0);
  CHECK(coarse / fine == doctest::Approx(4.0).epsilon(0.2));
}

TEST_CASE("shallow water: a tracer wave travels with a uniform wind") {
  // The centred scheme's frequency is U sin(k dx) / dx, without damping.
  for (const int64_t columns : {16, 32}) {
    const Plane plane = plane_of(4, columns, 0.0);
    ShallowWater model(plane, 1);
    ShallowWaterState state(plane.rows, plane.columns, 1);
    for_each_centre(plane, [&](int64_t j, int64_t i, double x, double) {
      state.u().row(j)[i] = 20.0;
      state.h().row(j)[i] = 1000.0;
      state.tracer_mass(0).row(j)[i] = 1000.0 * std::cos(kTwoPi * x);
    });
    state.wrap();
    const std::complex<double> start = wave_part(plane, state.tracer_mass(0), Direction::kX);
    const double time = 24.0 * 3600.0;
    for (int step = 0; step < 120; ++step) {
      model.step(state, time / 120);
    }
    const std::complex<double> change = wave_part(plane, state.tracer_mass(0), Direction::kX) / start;
    const double dx = model.grid().dx();
    CHECK(-std::arg(change) / time ==
          doctest::Approx(20.0 / dx * std::sin(kTwoPi / static_cast<double>(columns))).epsilon(1e-6));
    CHECK(std::abs(change) == doctest::Approx(1.0).epsilon(1e-6));
  }
}

TEST_CASE("flow driving: relaxation goes to the jet and the sources at its rate, and leaves the mass alone") {
  const Plane plane = plane_of(6, 5, 1.0e-4);
  const CGrid grid(plane);
  DrivingOptions options;
  options.wind_relaxation_time = 1000.0;
  options.jet = {1.0, 2.0, 3.0, -3.0, -2.0, -1.0};
  options.tracer_relaxation_time = 500.0;
  options.tracer_sources.push_back(grid.make_field());
  FlowDriving driving(grid, options, 1);
  ShallowWaterState state(plane.rows, plane.columns, 1);
  for_each_centre(plane, [&](int64_t j, int64_t i, double x, double) {
    state.v().row(j)[i] = 8.0;
    state.h().row(j)[i] = 900.0 + 200.0 * x;
    state.tracer_mass(0).row(j)[i] = state.h().at(j, i);
  });
  state.wrap();
  const PeriodicField depth = state.h();
  for (int step = 0; step < 10; ++step) {
    driving.apply(state, 50.0);
  }
  const double wind_left = std::pow(0.95, 10), tracer_left = std::pow(0.9, 10);
  for_each_centre(plane, [&](int64_t j, int64_t i, double, double) {
    CHECK(state.u().at(j, i) == doctest::Approx(options.jet[static_cast<size_t>(j)] * (1.0 - wind_left)));
    CHECK(state.v().at(j, i) == doctest::Approx(8.0 * wind_left));
    CHECK(state.h().at(j, i) == depth.at(j, i));
    CHECK(state.tracer_mass(0).at(j, i) == doctest::Approx(depth.at(j, i) * tracer_left));
  });
}

TEST_CASE("flow driving: damping takes the shortest wave at its rate, long ones hardly, and conserves sums") {
  const Plane plane = plane_of(8, 16, 1.0e-4);
  const CGrid grid(plane);
  DrivingOptions options;
  options.damping_time = 1000.0;
  FlowDriving driving(grid, options, 2);
  CHECK(driving.stable_time_step() == 1000.0);
  ShallowWaterState state(plane.rows, plane.columns, 2);
  for_each_centre(plane, [&](int64_t j, int64_t i, double x, double) {
    const double sign = (i + j) % 2 == 0 ? 1.0 : -1.0;
    state.u().row(j)[i] = 4.0 * sign;
    state.v().row(j)[i] = 5.0 * std::cos(kTwoPi * x);
    state.h().row(j)[i] = 1000.0 + 30.0 * sign;
    state.tracer_mass(0).row(j)[i] = 0.5 * state.h().at(j, i);
    state.tracer_mass(1).row(j)[i] = state.h().at(j, i) * (1.0 + 0.1 * std::cos(kTwoPi * x) + 0.1 * sign);
  });
  state.wrap();
  const ShallowWaterState start = state;
  driving.apply(state, 100.0);
  // del^4 of one turn over 16 cells of dx against that of the shortest wave (dx = dy / 2 here).
  const double dx2 = std::pow(grid.dx(), 2), dy2 = std::pow(grid.dy(), 2);
  const double share = std::pow((2.0 - 2.0 * std::cos(kTwoPi / 16.0)) / dx2 / (4.0 / dx2 + 4.0 / dy2), 2);
  for_each_centre(plane, [&](int64_t j, int64_t i, double, double) {
    CHECK(state.u().at(j, i) == doctest::Approx(0.9 * start.u().at(j, i)));
    CHECK(std::fabs(state.v().at(j, i) - (1.0 - 0.1 * share) * start.v().at(j, i)) < 1e-12);
    CHECK(state.h().at(j, i) == start.h().at(j, i));
    CHECK(std::fabs(state.tracer_mass(0).at(j, i) - start.tracer_mass(0).at(j, i)) < 1e-10);
  });
  CHECK(state.tracer_mass(1).sum() == doctest::Approx(start.tracer_mass(1).sum()).epsilon(1e-14));
  CHECK(state.tracer_mass(1).at(0, 0) < start.tracer_mass(1).at(0, 0));
}
