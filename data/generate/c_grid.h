// Arakawa's C grid, periodic in longitude: fields, operators, and the loops over rows of the shallow-water equations.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace vit_hybrid::data {

/// Values on a doubly periodic grid of rows x columns. Rows and columns -1 and rows(), columns() are the halo: copies
/// of the opposite edges as of the last wrap(), so that stencils need no index arithmetic.
class PeriodicField {
 public:
  PeriodicField() = default;
  PeriodicField(int64_t rows, int64_t columns);

  int64_t rows() const { return rows_; }
  int64_t columns() const { return columns_; }
  /// Row `j` in [-1, rows()]; the result is indexed by column in [-1, columns()].
  double* row(int64_t j) { return values_.data() + (j + 1) * stride() + 1; }
  const double* row(int64_t j) const { return values_.data() + (j + 1) * stride() + 1; }
  double at(int64_t j, int64_t i) const { return row(j)[i]; }
  /// Renews the halo from the interior.
  void wrap();
  /// Sum of the interior, row by row.
  double sum() const;

 private:
  int64_t stride() const { return columns_ + 2; }

  int64_t rows_ = 0;
  int64_t columns_ = 0;
  std::vector<double> values_;
};

inline constexpr int64_t kWorthThreads = 32768;  ///< cells; below, starting threads costs more than a loop

/// Calls `block(begin, end)` for a few rows after the other of a grid, on several threads where that pays; the calls
/// must not depend on each other.
template <class BlockFunction>
void for_each_block(int64_t rows, int64_t columns, const BlockFunction& block) {
  constexpr int64_t kBlockRows = 16;
#pragma omp parallel for schedule(static) if (rows * columns >= kWorthThreads)
  for (int64_t begin = 0; begin < rows; begin += kBlockRows) {
    block(begin, std::min(begin + kBlockRows, rows));
  }
}

/// Calls `row(j)` for every row of a grid, on several threads where that pays; the calls must not depend on each other.
template <class RowFunction>
void for_each_row(int64_t rows, int64_t columns, const RowFunction& row) {
#pragma omp parallel for schedule(static) if (rows * columns >= kWorthThreads)
  for (int64_t j = 0; j < rows; ++j) {
    row(j);
  }
}

/// The plane and its constants, in SI units.
struct Plane {
  int64_t rows = 32;                   ///< cells along y, at least 4
  int64_t columns = 64;                ///< cells along x, at least 4
  double length_x = 12.0e6;            ///< m
  double length_y = 6.0e6;             ///< m
  double gravity = 9.80665;            ///< m/s^2
  double mean_depth = 1000.0;          ///< h_0, m; only a scale: the depth itself is part of the state
  double coriolis_mean = 1.0e-4;       ///< f_0, 1/s
  double coriolis_variation = 2.0e-5;  ///< f_1, 1/s: f = f_0 + f_1 sin(2 pi y / L_y)
};

/// The prognostic fields: u and v in m/s, h in m, and h c of each tracer c.
struct ShallowWaterState {
  ShallowWaterState(int64_t rows, int64_t columns, int64_t num_tracers);

  std::vector<PeriodicField> fields;  ///< u, v, h and the tracers' h c, in this order

  PeriodicField& u() { return fields[0]; }
  PeriodicField& v() { return fields[1]; }
  PeriodicField& h() { return fields[2]; }
  PeriodicField& tracer_mass(int64_t k) { return fields[static_cast<size_t>(3 + k)]; }
  const PeriodicField& u() const { return fields[0]; }
  const PeriodicField& v() const { return fields[1]; }
  const PeriodicField& h() const { return fields[2]; }
  const PeriodicField& tracer_mass(int64_t k) const { return fields[static_cast<size_t>(3 + k)]; }
  int64_t num_tracers() const { return static_cast<int64_t>(fields.size()) - 3; }
  /// Renews the halos of all fields.
  void wrap();
};

/// Geometry and diagnostics; states are given with halos up to date. Immutable.
class CGrid {
 public:
  /// Error(kInternal) for a grid below 4 x 4, and for lengths, gravity or a depth that are not positive.
  explicit CGrid(const Plane& plane);

  const Plane& plane() const { return plane_; }
  int64_t rows() const { return plane_.rows; }
  int64_t columns() const { return plane_.columns; }
  double dx() const { return dx_; }
  double dy() const { return dy_; }
  /// Coriolis parameter at the corners of row `j` (y = j dy), 1/s.
  double coriolis(int64_t j) const { return coriolis_[static_cast<size_t>(j)]; }
  PeriodicField make_field() const { return {plane_.rows, plane_.columns}; }

  /// Relative vorticity dv/dx - du/dy at the corners, 1/s; halo renewed.
  void vorticity(const ShallowWaterState& state, PeriodicField& result) const;
  /// Potential vorticity q = (f + vorticity) / h at the corners, 1/(m s); halo renewed.
  void potential_vorticity(const ShallowWaterState& state, PeriodicField& result) const;
  /// Horizontal divergence du/dx + dv/dy at the centres, 1/s; halo not renewed.
  void divergence(const ShallowWaterState& state, PeriodicField& result) const;
  /// Kinetic energy per unit mass at the centres, m^2/s^2; halo not renewed.
  void kinetic_energy(const ShallowWaterState& state, PeriodicField& result) const;
  /// Mixing ratio c of a tracer at the centres; halo renewed.
  void tracer(const ShallowWaterState& state, int64_t k, PeriodicField& result) const;

 private:
  Plane plane_;
  double dx_;
  double dy_;
  std::vector<double> coriolis_;
};

/// Loops over one row, for the widest vectors of the machine: the same bits on every one.
namespace rows {

/// Rows are indexed from -1 to `n`; results from 0 to n - 1. North is the next row, south the one before.

/// Relative vorticity at the corners.
void vorticity(int64_t n, double per_dx, double per_dy, const double* u, const double* u_south, const double* v,
               double* out);
/// Vorticity in `out` becomes potential vorticity with the Coriolis parameter f.
void potential_vorticity(int64_t n, double f, const double* h, const double* h_south, double* out);
void kinetic_energy(int64_t n, const double* u, const double* v, const double* v_north, double* out);
/// Mass fluxes through the western and southern faces; g h is added to `bernoulli`.
void fluxes(int64_t n, double gravity, const double* u, const double* v, const double* h, const double* h_south,
            double* fx, double* fy, double* bernoulli);
void quotient(int64_t n, const double* a, const double* b, double* out);

/// What the tendencies of a row are made of.
struct Fluxes {
  const double *q, *q_north, *q_south;
  const double *fx, *fx_south;
  const double *fy, *fy_north, *fy_south;
  const double *b, *b_south;
};
/// alpha .. phi, all times 24, are (3.34) of Arakawa and Lamb. epsilon and phi couple the flux along a face's own
/// direction, so that on cells that are not square they carry the ratio of the sides.
void tendency_of_u(int64_t n, double per_dx, double dy_over_dx, const Fluxes& row, double* out);
void tendency_of_v(int64_t n, double per_dy, double dx_over_dy, const Fluxes& row, double* out);
void tendency_of_depth(int64_t n, double per_dx, double per_dy, const Fluxes& row, double* out);
/// Of h c, from the mixing ratio c.
void tendency_of_tracer(int64_t n, double per_dx, double per_dy, const Fluxes& row, const double* c,
                        const double* c_north, const double* c_south, double* out);

/// out[i] = a[i] + weight * slope[i]; out may be a
void add_slope(int64_t n, const double* a, double weight, const double* slope, double* out);

/// out = keep * out + x_weight * (second difference along the row) + y_weight * (across the rows)
void add_laplacian(int64_t n, double x_weight, double y_weight, double keep, const double* a, const double* north,
                   const double* south, double* out);
void relax_wind(int64_t n, double part, double jet, double* u, double* v);
void relax_tracer(int64_t n, double part, const double* source, const double* h, double* mass);

}  // namespace rows

}  // namespace vit_hybrid::data
