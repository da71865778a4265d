// Loops over one row of the shallow-water grid, for the widest vectors of the machine: the same bits on every one.
#pragma once

#include <cstdint>

namespace vit_hybrid::data::rows {

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

}  // namespace vit_hybrid::data::rows
