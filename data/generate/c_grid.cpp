// Periodic fields with a ring of halo cells, and the operators of the C grid on them.
#include "data/generate/c_grid.h"

#include <cmath>
#include <numbers>

#include "data/generate/row_kernels.h"
#include "src/base/error.h"
#include "src/base/text.h"

namespace vit_hybrid::data {

PeriodicField::PeriodicField(int64_t rows, int64_t columns)
    : rows_(rows), columns_(columns), values_(static_cast<size_t>((rows + 2) * (columns + 2)), 0.0) {}

void PeriodicField::wrap() {
  for (int64_t j = 0; j < rows_; ++j) {
    double* values = row(j);
    values[-1] = values[columns_ - 1];
    values[columns_] = values[0];
  }
  std::copy_n(row(rows_ - 1) - 1, stride(), row(-1) - 1);
  std::copy_n(row(0) - 1, stride(), row(rows_) - 1);
}

double PeriodicField::sum() const {
  double total = 0.0;
  for (int64_t j = 0; j < rows_; ++j) {
    const double* values = row(j);
    double row_total = 0.0;
    for (int64_t i = 0; i < columns_; ++i) {
      row_total += values[i];
    }
    total += row_total;
  }
  return total;
}

namespace {}  // namespace

ShallowWaterState::ShallowWaterState(int64_t rows, int64_t columns, int64_t num_tracers)
    : fields(static_cast<size_t>(3 + num_tracers), PeriodicField(rows, columns)) {}

void ShallowWaterState::wrap() {
  for (PeriodicField& field : fields) {
    field.wrap();
  }
}

CGrid::CGrid(const Plane& plane)
    : plane_(plane),
      dx_(plane.length_x / static_cast<double>(plane.columns)),
      dy_(plane.length_y / static_cast<double>(plane.rows)) {
  VH_ASSERT(plane.rows >= 4 && plane.columns >= 4, str("grid of ", plane.rows, " x ", plane.columns, " cells"));
  VH_ASSERT(plane.length_x > 0 && plane.length_y > 0 && plane.gravity > 0 && plane.mean_depth > 0,
            "lengths, gravity and depth of the plane");
  for (int64_t j = 0; j < plane.rows; ++j) {
    const double turns = static_cast<double>(j) / static_cast<double>(plane.rows);
    coriolis_.push_back(plane.coriolis_mean + plane.coriolis_variation * std::sin(2.0 * std::numbers::pi * turns));
  }
}

void CGrid::vorticity(const ShallowWaterState& state, PeriodicField& result) const {
  const double per_dx = 1.0 / dx_, per_dy = 1.0 / dy_;
  for_each_row(rows(), columns(), [&](int64_t j) {
    rows::vorticity(columns(), per_dx, per_dy, state.u().row(j), state.u().row(j - 1), state.v().row(j), result.row(j));
  });
  result.wrap();
}

void CGrid::potential_vorticity(const ShallowWaterState& state, PeriodicField& result) const {
  vorticity(state, result);
  for_each_row(rows(), columns(), [&](int64_t j) {
    rows::potential_vorticity(columns(), coriolis(j), state.h().row(j), state.h().row(j - 1), result.row(j));
  });
  result.wrap();
}

void CGrid::divergence(const ShallowWaterState& state, PeriodicField& result) const {
  const double per_dx = 1.0 / dx_, per_dy = 1.0 / dy_;
  for_each_row(rows(), columns(), [&](int64_t j) {
    const double *u = state.u().row(j), *v = state.v().row(j), *v_north = state.v().row(j + 1);
    double* out = result.row(j);
#pragma omp simd
    for (int64_t i = 0; i < columns(); ++i) {
      out[i] = per_dx * (u[i + 1] - u[i]) + per_dy * (v_north[i] - v[i]);
    }
  });
}

void CGrid::kinetic_energy(const ShallowWaterState& state, PeriodicField& result) const {
  for_each_row(rows(), columns(), [&](int64_t j) {
    rows::kinetic_energy(columns(), state.u().row(j), state.v().row(j), state.v().row(j + 1), result.row(j));
  });
}

void CGrid::tracer(const ShallowWaterState& state, int64_t k, PeriodicField& result) const {
  for_each_row(rows(), columns(), [&](int64_t j) {
    rows::quotient(columns(), state.tracer_mass(k).row(j), state.h().row(j), result.row(j));
  });
  result.wrap();
}

}  // namespace vit_hybrid::data
