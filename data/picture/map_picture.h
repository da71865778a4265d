// MapPicture: maps of fields on a latitude-longitude grid, side by side, with axes, colour bars and titles.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "data/datasets/coordinates.h"
#include "data/picture/color_map.h"
#include "data/picture/png_file.h"

namespace vit_hybrid::data {

/// One map, with north up: from the northernmost row to the southernmost, and from the westernmost column to the
/// easternmost, or once round where the columns go round the globe.
struct MapPanel {
  std::string title;
  at::Tensor field;  ///< [H, W], floating point, host
  /// Of its points; where it is not known, row i is at latitude 90 - 180 i/(H-1) degrees, column j at longitude
  /// 360 j/W degrees.
  Grid grid;
  double low = 0.0;   ///< value of the colours' lower end
  double high = 1.0;  ///< and of the upper one; where it is not above low, the range is widened
  const ColorMap* colors = &kViridis;
  std::string bar_label;  ///< under the colour bar: what the numbers are, with their unit
};

/// The smallest and the largest finite value of a field; 0 and 0 where there is none.
struct ValueRange {
  double low = 0.0;
  double high = 0.0;
};
ValueRange finite_range(const at::Tensor& field);

/// The panels from left to right under the title. Values between grid points are bilinear, periodic in longitude where
/// the columns go round; what is not finite is grey.
Pixels draw_maps(const std::string& title, const std::vector<MapPanel>& panels);

}  // namespace vit_hybrid::data
