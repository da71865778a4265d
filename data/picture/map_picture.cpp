// MapPicture: where everything lies, and the pixels of the maps.
#include "data/picture/map_picture.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

#include "data/picture/canvas.h"
#include "data/picture/ticks.h"
#include "src/base/error.h"
#include "src/base/text.h"

namespace vit_hybrid::data {

namespace {

// Pixels. The height of the picture follows from adding them up.
constexpr int kTextScale = 2;
constexpr int kTitleScale = 3;
constexpr int kMapWidth = 540;
constexpr int kMapHeight = kMapWidth / 2;  // as 180 by 360 degrees lie
constexpr int kLeft = 110;
constexpr int kRight = 60;
constexpr int kBetween = 80;
constexpr int kTitleTop = 18;
constexpr int kPanelTitleTop = 62;
constexpr int kMapTop = 88;
constexpr int kTickLength = 6;
constexpr int kTickLabelTop = kTickLength + 6;  // below the map or bar
constexpr int kAxisLabelTop = kTickLabelTop + 26;
constexpr int kBarTop = kMapTop + kMapHeight + 82;
constexpr int kBarHeight = 18;
constexpr int kHeight = kBarTop + kBarHeight + kAxisLabelTop + 34;

// --- values ---------------------------------------------------------------------------------------------------------

// The points of a grid along one side of a map.
class MapAxis {
 public:
  // `points` grow or fall. Where `circle` is not 0 and so many degrees lie from the first point to the one that would
  // follow the last, the axis goes once round.
  MapAxis(std::vector<double> points, double circle) : points_(std::move(points)) {
    num_points_ = std::ssize(points_);
    const double step =
        num_points_ < 2 ? 0.0 : (points_.back() - points_.front()) / static_cast<double>(num_points_ - 1);
    is_round_ = std::abs(step) > 0.0 &&
                std::abs(std::abs(step) * static_cast<double>(num_points_) - circle) < std::abs(step) / 2;
    if (is_round_) {
      points_.push_back(points_.front() + std::copysign(circle, step));
    }
    falls_ = step < 0.0;
  }

  double low() const { return std::min(points_.front(), points_.back()); }
  double high() const { return std::max(points_.front(), points_.back()); }
  int64_t num_points() const { return num_points_; }

  // The point at or before `degrees` on the way from low to high or back, in the order of the points, and how far it is
  // from there to the next one, from 0 to 1.
  struct Place {
    int64_t point;
    int64_t next;
    double part;
  };
  Place place(double degrees) const {
    if (points_.size() < 2) {
      return {0, 0, 0.0};
    }
    const auto after = falls_ ? std::upper_bound(points_.begin(), points_.end(), degrees, std::greater<>())
                              : std::upper_bound(points_.begin(), points_.end(), degrees);
    const auto i = std::clamp<int64_t>(after - points_.begin() - 1, 0, std::ssize(points_) - 2);
    const double begin = points_[static_cast<size_t>(i)];
    const double part = (degrees - begin) / (points_[static_cast<size_t>(i) + 1] - begin);
    return {i, (i + 1) % num_points_, std::clamp(part, 0.0, 1.0)};
  }

 private:
  std::vector<double> points_;  // with the first one again, where the axis goes round
  int64_t num_points_ = 0;
  bool is_round_ = false;
  bool falls_ = false;
};

MapAxis latitude_axis(const MapPanel& panel) {
  std::vector<double> points = panel.grid.latitudes;
  const int64_t height = panel.field.size(0);
  for (int64_t i = std::ssize(points); i < height; ++i) {
    points.push_back(height < 2 ? 0.0 : 90.0 - 180.0 * static_cast<double>(i) / static_cast<double>(height - 1));
  }
  return {std::move(points), 0.0};
}

MapAxis longitude_axis(const MapPanel& panel) {
  constexpr double kCircle = 360.0;
  std::vector<double> points = panel.grid.longitudes;
  const int64_t width = panel.field.size(1);
  for (int64_t j = std::ssize(points); j < width; ++j) {
    points.push_back(kCircle * static_cast<double>(j) / static_cast<double>(width));
  }
  return {std::move(points), kCircle};
}

// A field as something to be looked up between its points.
class Surface {
 public:
  explicit Surface(const MapPanel& panel)
      : values_(panel.field.to(at::kDouble).contiguous()),
        latitudes_(latitude_axis(panel)),
        longitudes_(longitude_axis(panel)) {}

  const MapAxis& latitudes() const { return latitudes_; }
  const MapAxis& longitudes() const { return longitudes_; }

  // Points of the grid a pixel spans, at least one: so many lookups each way make its value.
  int lookups() const {
    return static_cast<int>(std::max({int64_t{1}, (longitudes_.num_points() + kMapWidth - 1) / kMapWidth,
                                      (latitudes_.num_points() + kMapHeight - 1) / kMapHeight}));
  }

  // `down` from 0 at the northern edge to 1 at the southern one, `right` from 0 at the western edge to 1.
  double at(double down, double right) const {
    const auto row = latitudes_.place(latitudes_.high() + (latitudes_.low() - latitudes_.high()) * down);
    const auto column = longitudes_.place(longitudes_.low() + (longitudes_.high() - longitudes_.low()) * right);
    const double upper = mixed(value(row.point, column.point), value(row.point, column.next), column.part);
    return mixed(
        upper,
        row.part == 0.0 ? upper : mixed(value(row.next, column.point), value(row.next, column.next), column.part),
        row.part);
  }

 private:
  static double mixed(double a, double b, double part) { return a + (b - a) * part; }
  double value(int64_t i, int64_t j) const {
    return values_.const_data_ptr<double>()[i * longitudes_.num_points() + j];
  }

  at::Tensor values_;
  MapAxis latitudes_;
  MapAxis longitudes_;
};

double pixel_value(const Surface& surface, int x, int y) {
  const int n = surface.lookups();
  double sum = 0.0;
  for (int row = 0; row < n; ++row) {
    const double down = (y + (row + 0.5) / n) / kMapHeight;
    for (int column = 0; column < n; ++column) {
      const double right = (x + (column + 0.5) / n) / kMapWidth;
      sum += surface.at(down, right);
    }
  }
  return sum / (n * n);
}

// The panel's range, or one around it where it is empty.
ValueRange usable_range(const MapPanel& panel) {
  if (panel.high > panel.low && std::isfinite(panel.high - panel.low)) {
    return {panel.low, panel.high};
  }
  const double middle = std::isfinite(panel.low) ? panel.low : 0.0;
  const double around = std::max(std::abs(middle), 1.0) * 1e-3;
  return {middle - around, middle + around};
}

// --- drawing --------------------------------------------------------------------------------------------------------

void draw_map(Canvas& canvas, int left, const MapPanel& panel, const Surface& surface) {
  const ValueRange range = usable_range(panel);
  for (int y = 0; y < kMapHeight; ++y) {
    for (int x = 0; x < kMapWidth; ++x) {
      const double value = pixel_value(surface, x, y);
      const double place = (value - range.low) / (range.high - range.low);
      canvas.set(left + x, kMapTop + y, std::isfinite(value) ? panel.colors->at(place) : kNoValue);
    }
  }
  canvas.frame(left, kMapTop, kMapWidth, kMapHeight, kBlack);
  canvas.text(left + kMapWidth / 2, kPanelTitleTop, panel.title, kTextScale, Align::kCenter);
}

// Where marks stand: at the quarters of a globe, at round numbers of a region.
std::vector<Tick> degree_ticks(const MapAxis& axis) {
  const double range = axis.high() - axis.low();
  if (range <= 0.0) {
    return {{axis.low(), short_number(axis.low())}};
  }
  if (range < 90.0) {
    return ticks(axis.low(), axis.high(), 5);
  }
  const int step = range > 180.0 ? 90 : 45;
  std::vector<Tick> marks;
  for (int degrees = static_cast<int>(std::ceil(axis.low() / step)) * step; degrees <= axis.high(); degrees += step) {
    marks.push_back({static_cast<double>(degrees), std::to_string(degrees)});
  }
  return marks;
}

// The pixel of a value on an axis of so many pixels; `share` of the way is from its first one.
int pixel_of(double share, int pixels) {
  return std::clamp(static_cast<int>(share * pixels), 0, pixels - 1);
}

double share_of(const MapAxis& axis, double degrees) {
  return axis.high() > axis.low() ? (degrees - axis.low()) / (axis.high() - axis.low()) : 0.5;
}

void draw_longitudes(Canvas& canvas, int left, const MapAxis& axis) {
  const int bottom = kMapTop + kMapHeight;
  for (const Tick& tick : degree_ticks(axis)) {
    const int x = left + pixel_of(share_of(axis, tick.value), kMapWidth);
    canvas.fill(x, bottom, 1, kTickLength, kBlack);
    canvas.text(x, bottom + kTickLabelTop, tick.label, kTextScale, Align::kCenter);
  }
  canvas.text(left + kMapWidth / 2, bottom + kAxisLabelTop, "longitude (degrees)", kTextScale, Align::kCenter);
}

// The numbers stand at the first map; the others get the marks.
void draw_latitudes(Canvas& canvas, int left, const MapAxis& axis, bool with_text) {
  for (const Tick& tick : degree_ticks(axis)) {
    const int y = kMapTop + pixel_of(1.0 - share_of(axis, tick.value), kMapHeight);
    canvas.fill(left - 1 - kTickLength, y, kTickLength, 1, kBlack);
    if (with_text) {
      canvas.text(left - kTickLength - 8, y - text_height(kTextScale) / 2, tick.label, kTextScale, Align::kRight);
    }
  }
  if (with_text) {
    canvas.text_upwards(left - 84, kMapTop + kMapHeight / 2, "latitude (degrees)", kTextScale);
  }
}

// As many numbers as there is room for.
std::vector<Tick> bar_ticks(const ValueRange& range) {
  for (int most = 7; most > 2; --most) {
    std::vector<Tick> out = ticks(range.low, range.high, most);
    int widest = 0;
    for (const Tick& tick : out) {
      widest = std::max(widest, text_width(tick.label, kTextScale));
    }
    const double share = out.size() < 2 ? 1.0 : (out[1].value - out[0].value) / (range.high - range.low);
    if (widest + 12 * kTextScale <= share * kMapWidth) {
      return out;
    }
  }
  return ticks(range.low, range.high, 2);
}

void draw_bar(Canvas& canvas, int left, const MapPanel& panel) {
  for (int x = 0; x < kMapWidth; ++x) {
    canvas.fill(left + x, kBarTop, 1, kBarHeight, panel.colors->at((x + 0.5) / kMapWidth));
  }
  canvas.frame(left, kBarTop, kMapWidth, kBarHeight, kBlack);
  const ValueRange range = usable_range(panel);
  const int bottom = kBarTop + kBarHeight;
  for (const Tick& tick : bar_ticks(range)) {
    const double place = (tick.value - range.low) / (range.high - range.low);
    const int x = left + std::clamp(static_cast<int>(std::lround(place * kMapWidth)), 0, kMapWidth - 1);
    canvas.fill(x, bottom, 1, kTickLength, kBlack);
    canvas.text(x, bottom + kTickLabelTop, tick.label, kTextScale, Align::kCenter);
  }
  canvas.text(left + kMapWidth / 2, bottom + kAxisLabelTop, panel.bar_label, kTextScale, Align::kCenter);
}

}  // namespace

ValueRange finite_range(const at::Tensor& field) {
  const at::Tensor values = field.to(at::kDouble).contiguous();
  ValueRange range;
  bool any = false;
  for (int64_t i = 0; i < values.numel(); ++i) {
    const double value = values.const_data_ptr<double>()[i];
    if (std::isfinite(value)) {
      range.low = any ? std::min(range.low, value) : value;
      range.high = any ? std::max(range.high, value) : value;
      any = true;
    }
  }
  return range;
}

Pixels draw_maps(const std::string& title, const std::vector<MapPanel>& panels) {
  const auto count = static_cast<int>(panels.size());
  const int maps = count * kMapWidth + (count - 1) * kBetween;
  // A title that is longer than the maps is set in smaller letters, or gets its room.
  const bool fits = text_width(title, kTitleScale) <= kLeft + maps;
  const int scale = fits ? kTitleScale : kTextScale;
  const int width = std::max(kLeft + maps + kRight, text_width(title, scale) + kRight);
  Canvas canvas(width, kHeight);
  canvas.text(width / 2, kTitleTop, title, scale, Align::kCenter);
  for (int i = 0; i < count; ++i) {
    const MapPanel& panel = panels[static_cast<size_t>(i)];
    VH_ASSERT(panel.field.dim() == 2 && panel.field.numel() > 0,
              str("a map has two dims: ", join(panel.field.sizes())));
    const int left = kLeft + i * (kMapWidth + kBetween);
    const Surface surface(panel);
    draw_map(canvas, left, panel, surface);
    draw_longitudes(canvas, left, surface.longitudes());
    draw_latitudes(canvas, left, surface.latitudes(), i == 0);
    draw_bar(canvas, left, panel);
  }
  return canvas.pixels();
}

}  // namespace vit_hybrid::data
