// ShallowWater: the Arakawa-Lamb scheme in space and the Runge-Kutta method in time.
#include "data/generate/shallow_water.h"

#include <cmath>
#include <utility>

namespace vit_hybrid::data {

ShallowWater::ShallowWater(const Plane& plane, int64_t num_tracers)
    : grid_(plane),
      q_(grid_.make_field()),
      bernoulli_(q_),
      flux_x_(q_),
      flux_y_(q_),
      ratio_(q_),
      stage_(plane.rows, plane.columns, num_tracers),
      sum_(stage_),
      slope_(stage_) {}

double ShallowWater::stable_time_step() const {
  // The fastest oscillation of the C-grid has the frequency 2 c sqrt(1/dx^2 + 1/dy^2); the method is stable on the
  // imaginary axis up to 2.82. 1.6 is sqrt(2.5), rounded up.
  const double speed = 1.6 * std::sqrt(grid_.plane().gravity * grid_.plane().mean_depth);
  return 2.7 / (2.0 * speed * std::hypot(1.0 / grid_.dx(), 1.0 / grid_.dy()));
}

void ShallowWater::step(ShallowWaterState& state, double dt) {
  const double to_next_stage[] = {dt / 2, dt / 2, dt};
  const double weight[] = {dt / 6, dt / 3, dt / 3, dt / 6};
  for (int s = 0; s < 4; ++s) {
    tendency(s == 0 ? state : stage_, slope_);
    for (size_t k = 0; k < state.fields.size(); ++k) {
      for_each_row(grid_.rows(), grid_.columns(), [&](int64_t j) {
        const double *start = state.fields[k].row(j), *slope = slope_.fields[k].row(j);
        double *sum = sum_.fields[k].row(j), *stage = stage_.fields[k].row(j);
        const double* sum_before = s == 0 ? start : sum;
#pragma omp simd
        for (int64_t i = 0; i < grid_.columns(); ++i) {
          sum[i] = sum_before[i] + weight[s] * slope[i];
        }
        if (s == 3) return;
#pragma omp simd
        for (int64_t i = 0; i < grid_.columns(); ++i) {
          stage[i] = start[i] + to_next_stage[s] * slope[i];
        }
      });
    }
    (s == 3 ? sum_ : stage_).wrap();
  }
  std::swap(state.fields, sum_.fields);
}

void ShallowWater::tendency(const ShallowWaterState& state, ShallowWaterState& result) {
  compute_fluxes(state);
  wind_tendency(result.u(), result.v());
  depth_tendency(result.h());
  for (int64_t k = 0; k < state.num_tracers(); ++k) {
    grid_.tracer(state, k, ratio_);
    tracer_tendency(ratio_, result.tracer_mass(k));
  }
}

void ShallowWater::compute_fluxes(const ShallowWaterState& state) {
  const double gravity = grid_.plane().gravity;
  grid_.potential_vorticity(state, q_);
  grid_.kinetic_energy(state, bernoulli_);
  for_each_row(grid_.rows(), grid_.columns(), [&](int64_t j) {
    const double *u = state.u().row(j), *v = state.v().row(j);
    const double *h = state.h().row(j), *h_south = state.h().row(j - 1);
    double *fx = flux_x_.row(j), *fy = flux_y_.row(j), *bernoulli = bernoulli_.row(j);
#pragma omp simd
    for (int64_t i = 0; i < grid_.columns(); ++i) {
      fx[i] = 0.5 * (h[i] + h[i - 1]) * u[i];
      fy[i] = 0.5 * (h[i] + h_south[i]) * v[i];
      bernoulli[i] += gravity * h[i];
    }
  });
  flux_x_.wrap();
  flux_y_.wrap();
  bernoulli_.wrap();
}

// alpha .. phi, all times 24, are Arakawa and Lamb's (3.34). epsilon and phi couple the flux along a face's own
// direction, so that on cells that are not square they carry the ratio of the sides.
void ShallowWater::wind_tendency(PeriodicField& du, PeriodicField& dv) const {
  const double per_dx = 1.0 / grid_.dx(), per_dy = 1.0 / grid_.dy(), per_24 = 1.0 / 24.0;
  const double dx_over_dy = grid_.dx() / grid_.dy(), dy_over_dx = grid_.dy() / grid_.dx();
  for_each_row(grid_.rows(), grid_.columns(), [&](int64_t j) {
    const double *q = q_.row(j), *q_north = q_.row(j + 1), *q_south = q_.row(j - 1);
    const double *fx = flux_x_.row(j), *fx_south = flux_x_.row(j - 1);
    const double *fy = flux_y_.row(j), *fy_north = flux_y_.row(j + 1);
    const double* fy_south = flux_y_.row(j - 1);
    const double *b = bernoulli_.row(j), *b_south = bernoulli_.row(j - 1);
    double *u_result = du.row(j), *v_result = dv.row(j);
#pragma omp simd
    for (int64_t i = 0; i < grid_.columns(); ++i) {
      const double alpha = 2 * q_north[i + 1] + q_north[i] + 2 * q[i] + q[i + 1];
      const double beta = q_north[i] + 2 * q_north[i - 1] + q[i - 1] + 2 * q[i];
      const double gamma = 2 * q_north[i] + q_north[i - 1] + 2 * q[i - 1] + q[i];
      const double delta = q_north[i + 1] + 2 * q_north[i] + q[i] + 2 * q[i + 1];
      const double epsilon = q_north[i + 1] + q_north[i] - q[i] - q[i + 1];
      const double epsilon_west = q_north[i] + q_north[i - 1] - q[i - 1] - q[i];
      const double across = alpha * fy_north[i] + beta * fy_north[i - 1] + gamma * fy[i - 1] + delta * fy[i];
      const double along = epsilon * fx[i + 1] - epsilon_west * fx[i - 1];
      u_result[i] = per_24 * (across - dy_over_dx * along) - per_dx * (b[i] - b[i - 1]);
    }
#pragma omp simd
    for (int64_t i = 0; i < grid_.columns(); ++i) {
      const double gamma_east = 2 * q_north[i + 1] + q_north[i] + 2 * q[i] + q[i + 1];
      const double delta = q_north[i + 1] + 2 * q_north[i] + q[i] + 2 * q[i + 1];
      const double alpha_south = 2 * q[i + 1] + q[i] + 2 * q_south[i] + q_south[i + 1];
      const double beta_south_east = q[i + 1] + 2 * q[i] + q_south[i] + 2 * q_south[i + 1];
      const double phi = -q_north[i + 1] + q_north[i] + q[i] - q[i + 1];
      const double phi_south = -q[i + 1] + q[i] + q_south[i] - q_south[i + 1];
      const double across =
          gamma_east * fx[i + 1] + delta * fx[i] + alpha_south * fx_south[i] + beta_south_east * fx_south[i + 1];
      const double along = phi * fy_north[i] - phi_south * fy_south[i];
      v_result[i] = -per_24 * (across + dx_over_dy * along) - per_dy * (b[i] - b_south[i]);
    }
  });
}

void ShallowWater::depth_tendency(PeriodicField& dh) const {
  const double per_dx = 1.0 / grid_.dx(), per_dy = 1.0 / grid_.dy();
  for_each_row(grid_.rows(), grid_.columns(), [&](int64_t j) {
    const double *fx = flux_x_.row(j), *fy = flux_y_.row(j), *fy_north = flux_y_.row(j + 1);
    double* out = dh.row(j);
#pragma omp simd
    for (int64_t i = 0; i < grid_.columns(); ++i) {
      out[i] = -per_dx * (fx[i + 1] - fx[i]) - per_dy * (fy_north[i] - fy[i]);
    }
  });
}

void ShallowWater::tracer_tendency(const PeriodicField& ratio, PeriodicField& result) const {
  const double per_dx = 1.0 / grid_.dx(), per_dy = 1.0 / grid_.dy();
  for_each_row(grid_.rows(), grid_.columns(), [&](int64_t j) {
    const double *c = ratio.row(j), *c_north = ratio.row(j + 1), *c_south = ratio.row(j - 1);
    const double *fx = flux_x_.row(j), *fy = flux_y_.row(j), *fy_north = flux_y_.row(j + 1);
    double* out = result.row(j);
#pragma omp simd
    for (int64_t i = 0; i < grid_.columns(); ++i) {
      const double east = fx[i + 1] * (c[i] + c[i + 1]), west = fx[i] * (c[i - 1] + c[i]);
      const double north = fy_north[i] * (c[i] + c_north[i]), south = fy[i] * (c_south[i] + c[i]);
      out[i] = -0.5 * (per_dx * (east - west) + per_dy * (north - south));
    }
  });
}

}  // namespace vit_hybrid::data
