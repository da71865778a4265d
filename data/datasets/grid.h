// Grid: the latitudes and longitudes of fields, the weights of their rows, and whether two grids are the same.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace vit_hybrid::data {

/// The points of a latitude-longitude grid in degrees, as far as they are known.
struct Grid {
  std::vector<double> latitudes;   ///< of the rows, growing or falling; empty: not known
  std::vector<double> longitudes;  ///< of the columns, growing or falling, at most 360 degrees; empty: not known
  bool operator==(const Grid&) const = default;
};

/// w_i = H cos(phi_i) / sum_k cos(phi_k): the weight of row i at its latitude phi_i, the mean of all is 1. Where the
/// latitudes are not known, phi_i = 90 - 180 i/(H-1) degrees, i = 0 .. H-1. Rows at the poles alone count alike.
std::vector<double> latitude_weights(const Grid& grid, int64_t height);

/// "721 latitudes from 90 to -90, 1440 longitudes from 0 to 359.75"; "no latitudes, no longitudes".
std::string grid_text(const Grid& grid);

/// Whether two lists of points are the same to 1e-4 degrees (of which float32 holds every longitude), or one of them is
/// not known.
bool same_points(const std::vector<double>& a, const std::vector<double>& b);
/// That of latitudes and longitudes.
bool same_grid(const Grid& a, const Grid& b);

/// `first`, and what it does not know from `second`.
Grid joined_grid(const Grid& first, const Grid& second);

/// Longitudes that go on beside each other: 360 is added or taken away behind a jump from 359 to 0, from 180 to -179.
void unwrap_longitudes(std::vector<double>& longitudes);

/// Error(kBadData) where a point is not finite, a latitude is not in [-90, 90] to 1e-4 degrees, points neither grow nor
/// fall, or longitudes go round more than once; `where` names the file.
void check_grid(const Grid& grid, const std::string& where);

}  // namespace vit_hybrid::data
