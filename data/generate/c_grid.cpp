// Periodic fields with a ring of halo cells, and the operators of the C grid on them; loops over rows, each compiled
// for several instruction sets, without contraction of products and sums: generated data must not depend on the
// machine.
#include "data/generate/c_grid.h"

#include <cmath>
#include <numbers>

#include "src/base/error.h"
#include "src/base/instruction_sets.h"
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

namespace rows {

VH_VERSIONS void vorticity(int64_t n, double per_dx, double per_dy, const double* u, const double* u_south,
                           const double* v, double* out) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) {
    out[i] = per_dx * (v[i] - v[i - 1]) - per_dy * (u[i] - u_south[i]);
  }
}

VH_VERSIONS void potential_vorticity(int64_t n, double f, const double* h, const double* h_south, double* out) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) {
    out[i] = 4.0 * (f + out[i]) / (h[i] + h[i - 1] + h_south[i] + h_south[i - 1]);
  }
}

VH_VERSIONS void kinetic_energy(int64_t n, const double* u, const double* v, const double* v_north, double* out) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) {
    out[i] = 0.25 * (u[i] * u[i] + u[i + 1] * u[i + 1] + v[i] * v[i] + v_north[i] * v_north[i]);
  }
}

VH_VERSIONS void fluxes(int64_t n, double gravity, const double* u, const double* v, const double* h,
                        const double* h_south, double* fx, double* fy, double* bernoulli) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) {
    fx[i] = 0.5 * (h[i] + h[i - 1]) * u[i];
    fy[i] = 0.5 * (h[i] + h_south[i]) * v[i];
    bernoulli[i] += gravity * h[i];
  }
}

VH_VERSIONS void quotient(int64_t n, const double* a, const double* b, double* out) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) {
    out[i] = a[i] / b[i];
  }
}

VH_VERSIONS void tendency_of_u(int64_t n, double per_dx, double dy_over_dx, const Fluxes& row, double* out) {
  const double *q = row.q, *q_north = row.q_north, *fx = row.fx, *fy = row.fy, *fy_north = row.fy_north, *b = row.b;
  const double per_24 = 1.0 / 24.0;
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) {
    const double alpha = 2 * q_north[i + 1] + q_north[i] + 2 * q[i] + q[i + 1];
    const double beta = q_north[i] + 2 * q_north[i - 1] + q[i - 1] + 2 * q[i];
    const double gamma = 2 * q_north[i] + q_north[i - 1] + 2 * q[i - 1] + q[i];
    const double delta = q_north[i + 1] + 2 * q_north[i] + q[i] + 2 * q[i + 1];
    const double epsilon = q_north[i + 1] + q_north[i] - q[i] - q[i + 1];
    const double epsilon_west = q_north[i] + q_north[i - 1] - q[i - 1] - q[i];
    const double across = alpha * fy_north[i] + beta * fy_north[i - 1] + gamma * fy[i - 1] + delta * fy[i];
    const double along = epsilon * fx[i + 1] - epsilon_west * fx[i - 1];
    out[i] = per_24 * (across - dy_over_dx * along) - per_dx * (b[i] - b[i - 1]);
  }
}

VH_VERSIONS void tendency_of_v(int64_t n, double per_dy, double dx_over_dy, const Fluxes& row, double* out) {
  const double *q = row.q, *q_north = row.q_north, *q_south = row.q_south, *fx = row.fx, *fx_south = row.fx_south;
  const double *fy_north = row.fy_north, *fy_south = row.fy_south, *b = row.b, *b_south = row.b_south;
  const double per_24 = 1.0 / 24.0;
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) {
    const double gamma_east = 2 * q_north[i + 1] + q_north[i] + 2 * q[i] + q[i + 1];
    const double delta = q_north[i + 1] + 2 * q_north[i] + q[i] + 2 * q[i + 1];
    const double alpha_south = 2 * q[i + 1] + q[i] + 2 * q_south[i] + q_south[i + 1];
    const double beta_south_east = q[i + 1] + 2 * q[i] + q_south[i] + 2 * q_south[i + 1];
    const double phi = -q_north[i + 1] + q_north[i] + q[i] - q[i + 1];
    const double phi_south = -q[i + 1] + q[i] + q_south[i] - q_south[i + 1];
    const double across =
        gamma_east * fx[i + 1] + delta * fx[i] + alpha_south * fx_south[i] + beta_south_east * fx_south[i + 1];
    const double along = phi * fy_north[i] - phi_south * fy_south[i];
    out[i] = -per_24 * (across + dx_over_dy * along) - per_dy * (b[i] - b_south[i]);
  }
}

VH_VERSIONS void tendency_of_depth(int64_t n, double per_dx, double per_dy, const Fluxes& row, double* out) {
  const double *fx = row.fx, *fy = row.fy, *fy_north = row.fy_north;
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) {
    out[i] = -per_dx * (fx[i + 1] - fx[i]) - per_dy * (fy_north[i] - fy[i]);
  }
}

VH_VERSIONS void tendency_of_tracer(int64_t n, double per_dx, double per_dy, const Fluxes& row, const double* c,
                                    const double* c_north, const double* c_south, double* out) {
  const double *fx = row.fx, *fy = row.fy, *fy_north = row.fy_north;
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) {
    const double east = fx[i + 1] * (c[i] + c[i + 1]), west = fx[i] * (c[i - 1] + c[i]);
    const double north = fy_north[i] * (c[i] + c_north[i]), south = fy[i] * (c_south[i] + c[i]);
    out[i] = -0.5 * (per_dx * (east - west) + per_dy * (north - south));
  }
}

VH_VERSIONS void add_slope(int64_t n, const double* a, double weight, const double* slope, double* out) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) {
    out[i] = a[i] + weight * slope[i];
  }
}

VH_VERSIONS void add_laplacian(int64_t n, double x_weight, double y_weight, double keep, const double* a,
                               const double* north, const double* south, double* out) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) {
    out[i] = keep * out[i] + x_weight * (a[i + 1] - 2 * a[i] + a[i - 1]) + y_weight * (north[i] - 2 * a[i] + south[i]);
  }
}

VH_VERSIONS void relax_wind(int64_t n, double part, double jet, double* u, double* v) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) {
    u[i] += part * (jet - u[i]);
    v[i] -= part * v[i];
  }
}

VH_VERSIONS void relax_tracer(int64_t n, double part, const double* source, const double* h, double* mass) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) {
    mass[i] += part * (h[i] * source[i] - mass[i]);
  }
}

}  // namespace rows

}  // namespace vit_hybrid::data
