// Weights, comparison and checks of the points of a grid.
#include "data/datasets/grid.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numbers>

#include "src/base/error.h"
#include "src/base/text.h"

namespace vit_hybrid::data {

namespace {

constexpr double kSamePoint = 1e-4;  // degrees
constexpr double kNoArea = 1e-9;     // sum of the cosines of rows at the poles, which rounding leaves

// In radians, of a grid whose latitudes are not known.
double row_latitude(int64_t row, int64_t height) {
  return height < 2 ? 0.0 : std::numbers::pi * (0.5 - static_cast<double>(row) / static_cast<double>(height - 1));
}

std::string degrees_text(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.6g", value);
  return text;
}

std::string points_text(const std::vector<double>& points, const char* name) {
  return points.empty() ? str("no ", name)
                        : str(points.size(), " ", name, " from ", degrees_text(points.front()), " to ",
                              degrees_text(points.back()));
}

void check_points(const std::vector<double>& points, const char* name, double most, const std::string& where) {
  const char* const hint =
      "degrees north of the rows or east of the columns, growing or falling, are needed: repair "
      "them, or rename them where they are something else";
  const bool grows = points.size() > 1 && points[1] > points[0];
  for (size_t i = 0; i < points.size(); ++i) {
    if (!std::isfinite(points[i]) || std::abs(points[i]) > most + kSamePoint) {
      throw Error(ErrorClass::kBadData,
                  str(where, ": the ", name, " ", i, " is ", points[i], "; allowed: -", most, " to ", most), hint);
    }
    if (i > 0 && (grows ? points[i] <= points[i - 1] : points[i] >= points[i - 1])) {
      throw Error(ErrorClass::kBadData,
                  str(where, ": the ", name, "s neither grow nor fall throughout: ", points[i - 1], " is followed by ",
                      points[i], " at ", i),
                  hint);
    }
  }
}

}  // namespace

std::vector<double> latitude_weights(const Grid& grid, int64_t height) {
  const bool is_known = !grid.latitudes.empty();
  VH_ASSERT(!is_known || static_cast<int64_t>(grid.latitudes.size()) == height, "one latitude for each row");
  std::vector<double> weights(static_cast<size_t>(height));
  double sum = 0.0;
  for (int64_t i = 0; i < height; ++i) {
    const auto row = static_cast<size_t>(i);
    const double phi = is_known ? grid.latitudes[row] * (std::numbers::pi / 180.0) : row_latitude(i, height);
    weights[row] = std::max(std::cos(phi), 0.0);  // a pole that was added up may lie behind the pole
    sum += weights[row];
  }
  if (sum < kNoArea) {
    weights.assign(weights.size(), 1.0);
    return weights;
  }
  for (double& weight : weights) {
    weight *= static_cast<double>(height) / sum;
  }
  return weights;
}

std::string grid_text(const Grid& grid) {
  return str(points_text(grid.latitudes, "latitudes"), ", ", points_text(grid.longitudes, "longitudes"));
}

bool same_points(const std::vector<double>& a, const std::vector<double>& b) {
  return a.empty() || b.empty() || std::equal(a.begin(), a.end(), b.begin(), b.end(), [](double x, double y) {
           return std::abs(x - y) <= kSamePoint;
         });
}

bool same_grid(const Grid& a, const Grid& b) {
  return same_points(a.latitudes, b.latitudes) && same_points(a.longitudes, b.longitudes);
}

Grid joined_grid(const Grid& first, const Grid& second) {
  return {first.latitudes.empty() ? second.latitudes : first.latitudes,
          first.longitudes.empty() ? second.longitudes : first.longitudes};
}

void unwrap_longitudes(std::vector<double>& longitudes) {
  for (size_t i = 1; i < longitudes.size(); ++i) {
    const double step = longitudes[i] - longitudes[i - 1];
    if (std::isfinite(step) && std::abs(step) > 180.0) {
      longitudes[i] -= 360.0 * std::round(step / 360.0);
    }
  }
}

void check_grid(const Grid& grid, const std::string& where) {
  check_points(grid.latitudes, "latitude", 90.0, where);
  check_points(grid.longitudes, "longitude", 720.0, where);
  if (!grid.longitudes.empty() && std::abs(grid.longitudes.back() - grid.longitudes.front()) > 360.0 + kSamePoint) {
    throw Error(ErrorClass::kBadData, str(where, ": the longitudes from ", grid.longitudes.front(), " to ",
                                          grid.longitudes.back(), " go round more than once"));
  }
}

}  // namespace vit_hybrid::data
