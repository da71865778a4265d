// ShallowWater: the Arakawa-Lamb scheme in space and the Runge-Kutta method in time.
#include "data/generate/shallow_water.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>
#include <vector>

#include "parallel/comm/operation.h"

namespace vit_hybrid::data {

namespace {

// A row with its halo, in memory that stays in the cache.
class Row {
 public:
  explicit Row(int64_t columns) : values_(static_cast<size_t>(columns + 2)) {}
  double* get() { return values_.data() + 1; }

 private:
  std::vector<double> values_;
};

// The mixing ratios of a tracer in a row and its neighbours, each computed once as the row moves north.
class RatioRows {
 public:
  RatioRows(const PeriodicField& mass, const PeriodicField& depth, int64_t first)
      : mass_(mass), depth_(depth), rows_{Row(mass.columns()), Row(mass.columns()), Row(mass.columns())} {
    fill(first - 1);
    fill(first);
  }
  void move_to(int64_t j) { fill(j + 1); }
  double* row(int64_t j) { return rows_[static_cast<size_t>((j + 1) % 3)].get(); }  // j is -1 or more

 private:
  // The halo too: in it lie the same quotients as at the opposite edge.
  void fill(int64_t j) { rows::quotient(mass_.columns() + 2, mass_.row(j) - 1, depth_.row(j) - 1, row(j) - 1); }

  const PeriodicField& mass_;
  const PeriodicField& depth_;
  std::array<Row, 3> rows_;
};

// Potential vorticity, mass fluxes and Bernoulli function in a few rows and their neighbours: they stay in the cache
// until the tendencies are made of them.
class BlockFluxes {
 public:
  BlockFluxes(const CGrid& grid, const ShallowWaterState& state, int64_t begin, int64_t end)
      : first_(begin - 1), columns_(grid.columns()), values_(memory((end - begin + 2) * kFields * (columns_ + 2))) {
    for (int64_t j = first_; j <= end; ++j) {
      fill(grid, state, j);
    }
  }

  rows::Fluxes around(int64_t j) const {
    return {row(kQ, j), row(kQ, j + 1), row(kQ, j - 1), row(kX, j),         row(kX, j - 1),
            row(kY, j), row(kY, j + 1), row(kY, j - 1), row(kBernoulli, j), row(kBernoulli, j - 1)};
  }

 private:
  enum Field : int64_t { kQ, kX, kY, kBernoulli, kFields };

  // Of this thread, for the block that it is at.
  static double* memory(int64_t count) {
    static thread_local std::vector<double> values;
    values.resize(std::max(values.size(), static_cast<size_t>(count)));
    return values.data();
  }

  double* row(Field field, int64_t j) const { return values_ + ((j - first_) * kFields + field) * (columns_ + 2) + 1; }

  void fill(const CGrid& grid, const ShallowWaterState& state, int64_t block_row) {
    const int64_t n = columns_;
    const int64_t j = (block_row + grid.rows()) % grid.rows();  // the plane is periodic
    const double *u = state.u().row(j), *v = state.v().row(j);
    const double *h = state.h().row(j), *h_south = state.h().row(j - 1);
    double *const q = row(kQ, block_row), *const b = row(kBernoulli, block_row);
    rows::vorticity(n, 1.0 / grid.dx(), 1.0 / grid.dy(), u, state.u().row(j - 1), v, q);
    rows::potential_vorticity(n, grid.coriolis(j), h, h_south, q);
    rows::kinetic_energy(n, u, v, state.v().row(j + 1), b);
    rows::fluxes(n, grid.plane().gravity, u, v, h, h_south, row(kX, block_row), row(kY, block_row), b);
    for (const Field field : {kQ, kX, kY, kBernoulli}) {
      double* const values = row(field, block_row);
      values[-1] = values[n - 1];
      values[n] = values[0];
    }
  }

  int64_t first_;
  int64_t columns_;
  double* values_;
};

}  // namespace

ShallowWater::ShallowWater(const Plane& plane, int64_t num_tracers)
    : grid_(plane), stage_(plane.rows, plane.columns, num_tracers), next_stage_(stage_), sum_(stage_) {}

double ShallowWater::stable_time_step() const {
  // The fastest oscillation of the C-grid has the frequency 2 c sqrt(1/dx^2 + 1/dy^2); the method is stable on the
  // imaginary axis up to 2.82. 1.6 is sqrt(2.5), rounded up.
  const double speed = 1.6 * std::sqrt(grid_.plane().gravity * grid_.plane().mean_depth);
  return 2.7 / (2.0 * speed * std::hypot(1.0 / grid_.dx(), 1.0 / grid_.dy()));
}

// A few rows at a time, so that what the tendencies of different fields share is still in the cache.
template <class Target, class Done>
void ShallowWater::for_each_slope(const ShallowWaterState& state, const Target& target, const Done& done) {
  const double per_dx = 1.0 / grid_.dx(), per_dy = 1.0 / grid_.dy();
  const double dx_over_dy = grid_.dx() / grid_.dy(), dy_over_dx = grid_.dy() / grid_.dx();
  const int64_t n = grid_.columns();
  for_each_block(grid_.rows(), n, [&](int64_t begin, int64_t end) {
    Row memory(n);
    const BlockFluxes fluxes(grid_, state, begin, end);
    const auto make = [&](size_t k, int64_t j, const auto& tendency) {
      double* const slope = target(k, j, memory.get());
      tendency(slope);
      done(k, j, slope);
    };
    for (int64_t j = begin; j < end; ++j) {
      const rows::Fluxes row = fluxes.around(j);
      make(0, j, [&](double* slope) { rows::tendency_of_u(n, per_dx, dy_over_dx, row, slope); });
      make(1, j, [&](double* slope) { rows::tendency_of_v(n, per_dy, dx_over_dy, row, slope); });
      make(2, j, [&](double* slope) { rows::tendency_of_depth(n, per_dx, per_dy, row, slope); });
    }
    for (int64_t k = 0; k < state.num_tracers(); ++k) {
      RatioRows c(state.tracer_mass(k), state.h(), begin);
      for (int64_t j = begin; j < end; ++j) {
        c.move_to(j);
        make(static_cast<size_t>(3 + k), j, [&](double* slope) {
          rows::tendency_of_tracer(n, per_dx, per_dy, fluxes.around(j), c.row(j), c.row(j + 1), c.row(j - 1), slope);
        });
      }
    }
  });
}

void ShallowWater::step(ShallowWaterState& state, double dt) {
  const double to_next_stage[] = {dt / 2, dt / 2, dt};
  const double weight[] = {dt / 6, dt / 3, dt / 3, dt / 6};
  const int64_t columns = grid_.columns();
  comm::note_work();
  for (int s = 0; s < 4; ++s) {
    const auto own_memory = [](size_t, int64_t, double* memory) { return memory; };
    for_each_slope(s == 0 ? state : stage_, own_memory, [&](size_t k, int64_t j, const double* slope) {
      const double* start = state.fields[k].row(j);
      double* sum = sum_.fields[k].row(j);
      rows::add_slope(columns, s == 0 ? start : sum, weight[s], slope, sum);
      if (s < 3) {
        rows::add_slope(columns, start, to_next_stage[s], slope, next_stage_.fields[k].row(j));
      }
    });
    (s == 3 ? sum_ : next_stage_).wrap();
    std::swap(stage_.fields, next_stage_.fields);
  }
  std::swap(state.fields, sum_.fields);
}

void ShallowWater::tendency(const ShallowWaterState& state, ShallowWaterState& result) {
  for_each_slope(
      state, [&](size_t k, int64_t j, double*) { return result.fields[k].row(j); },
      [](size_t, int64_t, const double*) {});
}

}  // namespace vit_hybrid::data
