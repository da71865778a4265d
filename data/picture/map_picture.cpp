// MapPicture: where everything lies, and the pixels of the maps.
#include "data/picture/map_picture.h"

#include <algorithm>
#include <cmath>

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
constexpr int kMapHeight = kMapWidth / 2;  // 180 by 360 degrees
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

// A field as something to be looked up between its points.
class Surface {
 public:
  explicit Surface(const at::Tensor& field)
      : values_(field.to(at::kDouble).contiguous()), height_(field.size(0)), width_(field.size(1)) {}

  // Points of the grid a pixel spans, at least one: so many lookups each way make its value.
  int lookups() const {
    return static_cast<int>(
        std::max({int64_t{1}, (width_ + kMapWidth - 1) / kMapWidth, (height_ + kMapHeight - 1) / kMapHeight}));
  }

  // `down` from 0 at the north pole to 1 at the south pole, `right` from 0 at longitude 0 to 1 at 360 degrees.
  double at(double down, double right) const {
    const double row = down * static_cast<double>(height_ - 1);
    const double column = right * static_cast<double>(width_);
    const auto i = std::min(static_cast<int64_t>(row), std::max<int64_t>(height_ - 2, 0));
    const auto j = static_cast<int64_t>(column);
    const double v = row - static_cast<double>(i);
    const double u = column - static_cast<double>(j);
    const double upper = mixed(value(i, j), value(i, j + 1), u);
    return mixed(upper, v == 0.0 ? upper : mixed(value(i + 1, j), value(i + 1, j + 1), u), v);
  }

 private:
  static double mixed(double a, double b, double part) { return a + (b - a) * part; }
  double value(int64_t i, int64_t j) const { return values_.const_data_ptr<double>()[i * width_ + j % width_]; }

  at::Tensor values_;
  int64_t height_;
  int64_t width_;
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

void draw_map(Canvas& canvas, int left, const MapPanel& panel) {
  const Surface surface(panel.field);
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

void draw_longitudes(Canvas& canvas, int left) {
  const int bottom = kMapTop + kMapHeight;
  for (int degrees = 0; degrees <= 360; degrees += 90) {
    const int x = left + std::min(degrees * kMapWidth / 360, kMapWidth - 1);
    canvas.fill(x, bottom, 1, kTickLength, kBlack);
    canvas.text(x, bottom + kTickLabelTop, std::to_string(degrees), kTextScale, Align::kCenter);
  }
  canvas.text(left + kMapWidth / 2, bottom + kAxisLabelTop, "longitude (degrees)", kTextScale, Align::kCenter);
}

// The numbers stand at the first map; the others get the marks.
void draw_latitudes(Canvas& canvas, int left, bool with_text) {
  for (int degrees = 90; degrees >= -90; degrees -= 45) {
    const int y = kMapTop + std::min((90 - degrees) * kMapHeight / 180, kMapHeight - 1);
    canvas.fill(left - 1 - kTickLength, y, kTickLength, 1, kBlack);
    if (with_text) {
      canvas.text(left - kTickLength - 8, y - text_height(kTextScale) / 2, std::to_string(degrees), kTextScale,
                  Align::kRight);
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
    draw_map(canvas, left, panel);
    draw_longitudes(canvas, left);
    draw_latitudes(canvas, left, i == 0);
    draw_bar(canvas, left, panel);
  }
  return canvas.pixels();
}

}  // namespace vit_hybrid::data
