// The picture of a forecast: its panels.
#include "src/infer/forecast_picture.h"

#include <ATen/TensorOperators.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "data/picture/map_picture.h"
#include "data/picture/ticks.h"
#include "src/base/text.h"

namespace vit_hybrid::train {

namespace {

using data::MapPanel;
using data::short_number;
using data::ValueRange;

MapPanel panel(const std::string& what, const at::Tensor& field, ValueRange colors, const std::string& label) {
  const ValueRange own = data::finite_range(field);
  MapPanel out;
  out.title = str(what, " (", short_number(own.low), " to ", short_number(own.high), ")");
  out.field = field;
  out.low = colors.low;
  out.high = colors.high;
  out.bar_label = label;
  return out;
}

MapPanel error_panel(const at::Tensor& error, const std::string& label) {
  const ValueRange range = data::finite_range(error);
  const double most = std::max(std::abs(range.low), std::abs(range.high));
  MapPanel out = panel("forecast - truth", error, {-most, most}, label);
  out.colors = &data::kBlueWhiteRed;
  return out;
}

}  // namespace

void draw_forecast(const ForecastPicture& picture, const std::string& path) {
  const std::string unit = picture.unit.empty() ? "units of the data" : picture.unit;
  const std::string label = str(picture.channel, " [", unit, "]");
  std::vector<MapPanel> panels;
  if (picture.truth.defined()) {
    const ValueRange range = data::finite_range(picture.truth);
    panels = {panel("truth", picture.truth, range, label), panel("forecast", picture.forecast, range, label),
              error_panel(picture.forecast - picture.truth, str("error of ", label))};
  } else {
    panels = {panel("forecast", picture.forecast, data::finite_range(picture.forecast), label)};
  }
  for (MapPanel& map : panels) {
    map.grid = picture.grid;
  }
  data::write_png(
      path, data::draw_maps(str(picture.channel, ", lead time ", picture.lead, " from ", picture.source), panels));
}

}  // namespace vit_hybrid::train
