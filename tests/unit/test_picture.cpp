// Pictures: PNG files decode again, colours and letters are what they should be, maps stand the right way up.
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <doctest/doctest.h>
#include <png.h>

#include <cmath>
#include <filesystem>
#include <limits>

#include "data/picture/bitmap_font.h"
#include "data/picture/canvas.h"
#include "data/picture/color_map.h"
#include "data/picture/map_picture.h"
#include "data/picture/png_file.h"
#include "data/picture/ticks.h"
#include "src/base/error.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/thrown_error.h"

using namespace vit_hybrid;
using namespace vit_hybrid::data;

namespace vit_hybrid::data {
doctest::String toString(const Rgb& color) {
  return doctest::toString(static_cast<int>(color.r)) + " " + doctest::toString(static_cast<int>(color.g)) + " " +
         doctest::toString(static_cast<int>(color.b));
}
}  // namespace vit_hybrid::data

namespace {

// A PNG file through libpng's reader.
Pixels decoded(const std::string& path) {
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  REQUIRE(png_image_begin_read_from_file(&image, path.c_str()) != 0);
  image.format = PNG_FORMAT_RGB;
  Pixels pixels{static_cast<int>(image.width), static_cast<int>(image.height), {}};
  pixels.values.resize(static_cast<size_t>(image.width) * image.height);
  REQUIRE(png_image_finish_read(&image, nullptr, pixels.values.data(), 0, nullptr) != 0);
  return pixels;
}

Rgb pixel(const Pixels& pixels, int x, int y) {
  return pixels.values[static_cast<size_t>(y) * static_cast<size_t>(pixels.width) + static_cast<size_t>(x)];
}

// The colour nearest to what a value has in the panel; distance in the sum of the three.
int distance(Rgb a, Rgb b) {
  return std::abs(a.r - b.r) + std::abs(a.g - b.g) + std::abs(a.b - b.b);
}

// The map's place is found by its frame: the first column with a black line of the map's height.
struct MapPlace {
  int left = 0;
  int top = 0;
  int width = 0;
  int height = 0;
};
MapPlace find_map(const Pixels& pixels) {
  const auto run_right = [&](int x, int y) {
    int n = 0;
    while (x + n < pixels.width && pixel(pixels, x + n, y) == kBlack)
      ++n;
    return n;
  };
  const auto run_down = [&](int x, int y) {
    int n = 0;
    while (y + n < pixels.height && pixel(pixels, x, y + n) == kBlack)
      ++n;
    return n;
  };
  for (int y = 0; y < pixels.height; ++y) {
    for (int x = 0; x < pixels.width; ++x) {
      // A mark of the axis may lengthen the line to the left.
      if (run_right(x, y) > 200 && run_down(x, y) > 100) {
        return {x + 1, y + 1, run_right(x, y) - 2, run_down(x, y) - 2};
      }
    }
  }
  FAIL("no map in the picture");
  return {};
}

}  // namespace

TEST_CASE("picture: a PNG file decodes to the same pixels") {
  const testing::ScratchFolder folder;
  Pixels pixels{37, 11, {}};
  for (int i = 0; i < 37 * 11; ++i) {
    pixels.values.push_back({static_cast<uint8_t>(i), static_cast<uint8_t>(7 * i), static_cast<uint8_t>(i * i)});
  }
  const std::string path = folder.file("a.png");
  write_png(path, pixels);
  const Pixels read = decoded(path);
  CHECK(read.width == 37);
  CHECK(read.height == 11);
  CHECK((read.values == pixels.values));
  CHECK(std::distance(std::filesystem::directory_iterator(folder.path()), {}) == 1);
}

TEST_CASE("picture: a PNG file that cannot be made says so") {
  const Error error = testing::thrown_error([] { write_png("/nowhere/a.png", {1, 1, {kBlack}}); });
  CHECK(error.error_class() == ErrorClass::kCannotCreate);
  CHECK(std::string(error.what()).find("/nowhere/a.png") != std::string::npos);
}

TEST_CASE("picture: viridis grows lighter all the way, the diverging map is light in the middle and even about it") {
  const auto lightness = [](Rgb c) { return 0.2126 * c.r + 0.7152 * c.g + 0.0722 * c.b; };
  double before = -1.0;
  for (int i = 0; i <= 100; ++i) {
    const double now = lightness(kViridis.at(i / 100.0));
    CHECK(now > before);
    before = now;
  }
  CHECK(kViridis.at(0.0) == Rgb{68, 1, 84});
  CHECK(kViridis.at(1.0) == Rgb{253, 231, 37});
  CHECK(kViridis.at(0.05) == Rgb{70, 19, 101});  // half way between (68, 1, 84) and (72, 36, 117), rounded up
  CHECK(kBlueWhiteRed.at(0.5) == Rgb{247, 247, 247});
  CHECK(kBlueWhiteRed.at(0.1).b > kBlueWhiteRed.at(0.1).r);
  CHECK(kBlueWhiteRed.at(0.9).r > kBlueWhiteRed.at(0.9).b);
  CHECK(kViridis.at(-3.0) == kViridis.at(0.0));
  CHECK(kViridis.at(7.0) == kViridis.at(1.0));
  CHECK(kViridis.at(std::numeric_limits<double>::quiet_NaN()) == kNoValue);
}

TEST_CASE("picture: every printable character has dots of its own") {
  for (char a = '!'; a <= '~'; ++a) {
    CHECK((glyph(a) != glyph(' ')));
    CHECK((glyph(a) != glyph('\n')));
    for (char b = static_cast<char>(a + 1); b <= '~'; ++b) {
      CAPTURE(a);
      CAPTURE(b);
      CHECK((glyph(a) != glyph(b) || drop(a) != drop(b)));
    }
  }
  CHECK((glyph(' ') == Glyph{}));
}

TEST_CASE("picture: text lies where it is asked to, upright or upwards") {
  Canvas canvas(60, 60);
  canvas.text(30, 10, "L", 2, Align::kLeft);  // the letter: a column of 7 dots, and a row of 5 at its foot
  for (int y = 10; y < 24; ++y) {
    CHECK(pixel(canvas.pixels(), 30, y) == kBlack);
    CHECK(pixel(canvas.pixels(), 29, y) == kWhite);
  }
  CHECK(pixel(canvas.pixels(), 39, 23) == kBlack);
  CHECK(pixel(canvas.pixels(), 39, 10) == kWhite);
  Canvas upwards(60, 60);
  upwards.text_upwards(10, 30, "L", 2);  // turned to the left: its column lies, its foot stands at the right
  for (int x = 10; x < 24; ++x) {
    CHECK(pixel(upwards.pixels(), x, 34) == kBlack);
  }
  CHECK(pixel(upwards.pixels(), 23, 25) == kBlack);
  CHECK(pixel(upwards.pixels(), 10, 25) == kWhite);
}

TEST_CASE("picture: ticks are round numbers in the range with labels that tell them apart") {
  const auto labels = [](double low, double high, int most) {
    std::string out;
    for (const Tick& tick : ticks(low, high, most)) {
      CHECK(tick.value >= low - 1e-9 * std::abs(high - low));
      CHECK(tick.value <= high + 1e-9 * std::abs(high - low));
      out += (out.empty() ? "" : " ") + tick.label;
    }
    return out;
  };
  CHECK(labels(0.0, 1.0, 6) == "0 0.2 0.4 0.6 0.8 1.0");
  CHECK(labels(-12.3, 14.9, 7) == "-10 -5 0 5 10");
  CHECK(labels(98000.0, 103500.0, 6) == "98000 99000 100000 101000 102000 103000");
  CHECK(labels(-3e-5, 3e-5, 5) == "-2e-05 0 2e-05");
  CHECK(labels(1.01e7, 1.03e7, 4) == "1.01e+07 1.02e+07 1.03e+07");
}

TEST_CASE("picture: numbers for people have about three digits") {
  CHECK(short_number(0.0) == "0.00");
  CHECK(short_number(-21.84) == "-21.8");
  CHECK(short_number(1197.3) == "1197");
  CHECK(short_number(101325.0) == "101325");
  CHECK(short_number(0.5) == "0.50");
  CHECK(short_number(8.391e-05) == "8.39e-05");
  CHECK(short_number(-2.5e7) == "-2.50e+07");
}

TEST_CASE(
    "picture: latitude 90 is at the top, longitude 0 at the left, values between grid points are between theirs") {
  constexpr int kRows = 19;
  constexpr int kColumns = 36;
  // Row 0, the north pole, has 0; the south pole has 1.
  const at::Tensor rows = at::arange(kRows, at::kDouble).div(kRows - 1).unsqueeze(1).expand({kRows, kColumns});
  MapPanel panel;
  panel.title = "rows";
  panel.field = rows.contiguous();
  panel.bar_label = "1";
  const Pixels picture = draw_maps("a title", {panel});
  const MapPlace map = find_map(picture);
  CHECK(map.width == 2 * map.height);
  for (int y = 0; y < map.height; ++y) {
    const Rgb expected = kViridis.at((y + 0.5) / map.height);
    CHECK(distance(pixel(picture, map.left + map.width / 3, map.top + y), expected) <= 3);
  }
  // Column j has the value j: it grows to the right, and the last column joins the first.
  panel.field = at::arange(kColumns, at::kDouble).unsqueeze(0).expand({kRows, kColumns}).contiguous();
  panel.high = kColumns - 1;
  const Pixels columns = draw_maps("a title", {panel});
  const double column_pixels = static_cast<double>(map.width) / kColumns;
  for (int j = 0; j + 1 < kColumns; ++j) {
    const int x = static_cast<int>((j + 0.5) * column_pixels);
    const double value = (x + 0.5) / column_pixels;
    CHECK(distance(pixel(columns, map.left + x, map.top + 5), kViridis.at(value / (kColumns - 1))) <= 3);
  }
  const int seam = static_cast<int>((kColumns - 0.5) * column_pixels);  // half way from 35 back to 0
  CHECK(distance(pixel(columns, map.left + seam, map.top + 5), kViridis.at(0.5)) <= 30);
}

// The first row of the map, counted from its top, whose colour is that of `value` on the scale from 0 to 1.
namespace {
int row_of(const Pixels& picture, const MapPlace& map, double value) {
  int nearest = 0;
  for (int y = 0; y < map.height; ++y) {
    const auto off = [&](int row) {
      return distance(pixel(picture, map.left + map.width / 2, map.top + row), kViridis.at(value));
    };
    nearest = off(y) < off(nearest) ? y : nearest;
  }
  return nearest;
}

// A marked row: 1 in a field of zeros.
MapPanel marked_row(int64_t row, std::vector<double> latitudes) {
  MapPanel panel;
  panel.field = at::zeros({static_cast<int64_t>(latitudes.size()), 8}, at::kDouble);
  panel.field[row].fill_(1.0);
  panel.grid.latitudes = std::move(latitudes);
  return panel;
}

// Marks at the left of the map, as rows counted from its top.
std::vector<int> marks(const Pixels& picture, const MapPlace& map) {
  std::vector<int> rows;
  for (int y = 0; y < map.height; ++y) {
    if (pixel(picture, map.left - 4, map.top + y) == kBlack) rows.push_back(y);
  }
  return rows;
}
}  // namespace

TEST_CASE("picture: north is up, wherever the rows begin, and a region has its own axis") {
  // 60 N is row 2 of rows from the north, row 10 of rows from the south: a sixth down the map.
  std::vector<double> north_first;
  for (int i = 0; i <= 12; ++i) {
    north_first.push_back(90.0 - 15.0 * i);
  }
  const std::vector<double> south_first(north_first.rbegin(), north_first.rend());
  const Pixels from_north = draw_maps("", {marked_row(2, north_first)});
  const Pixels from_south = draw_maps("", {marked_row(10, south_first)});
  const MapPlace map = find_map(from_north);
  CHECK(std::abs(row_of(from_north, map, 1.0) - map.height / 6) <= 1);
  CHECK((from_south.values == from_north.values));
  // From 75 to 65 N: 67.5 N is three quarters down, the marks stand at 66, 68, ... 74.
  const Pixels region = draw_maps("", {marked_row(3, {75.0, 72.5, 70.0, 67.5, 65.0})});
  CHECK(std::abs(row_of(region, map, 1.0) - 3 * map.height / 4) <= 1);
  const std::vector<int> rows = marks(region, map);
  REQUIRE(rows.size() == 5);
  for (int i = 0; i < 5; ++i) {
    CHECK(std::abs(rows[static_cast<size_t>(i)] - map.height * (1 + 2 * i) / 10) <= 1);
  }
  // Uneven rows lie at their latitudes: 0 is the middle, though it is the second of three.
  const Pixels uneven = draw_maps("", {marked_row(1, {80.0, 70.0, -80.0})});
  CHECK(std::abs(row_of(uneven, map, 1.0) - map.height / 16) <= 1);
}

TEST_CASE("picture: columns of a region end with it, and those that begin at the dateline go round") {
  MapPanel panel;
  panel.field = at::arange(5, at::kDouble).unsqueeze(0).expand({3, 5}).contiguous();
  panel.high = 4.0;
  panel.grid.longitudes = {350.0, 355.0, 360.0, 365.0, 370.0};
  const Pixels region = draw_maps("", {panel});
  const MapPlace map = find_map(region);
  CHECK(distance(pixel(region, map.left + 1, map.top + 5), kViridis.at(0.0)) <= 5);
  CHECK(distance(pixel(region, map.left + map.width - 2, map.top + 5), kViridis.at(1.0)) <= 5);
  CHECK(distance(pixel(region, map.left + map.width / 2, map.top + 5), kViridis.at(0.5)) <= 5);
  panel.field = at::arange(4, at::kDouble).unsqueeze(0).expand({3, 4}).contiguous();
  panel.high = 3.0;
  panel.grid.longitudes = {-180.0, -90.0, 0.0, 90.0};
  const Pixels globe = draw_maps("", {panel});
  CHECK(distance(pixel(globe, map.left + 3 * map.width / 4, map.top + 5), kViridis.at(1.0)) <= 5);
  CHECK(distance(pixel(globe, map.left + map.width - 1, map.top + 5), kViridis.at(0.0)) <= 5);
}

TEST_CASE("picture: a finer grid than the map is averaged, what is not finite is grey, a constant field has a range") {
  constexpr int kFine = 2000;
  at::Tensor field = at::zeros({4, kFine}, at::kDouble);
  field.slice(1, 0, kFine, 2).fill_(1.0);  // 0 and 1 in turn: 0.5 from afar
  MapPanel panel;
  panel.field = field;
  const Pixels picture = draw_maps("", {panel});
  const MapPlace map = find_map(picture);
  CHECK(distance(pixel(picture, map.left + 100, map.top + 50), kViridis.at(0.5)) <= 40);

  field.slice(1, 0, kFine / 2).fill_(std::numeric_limits<double>::infinity());
  panel.field = field;
  const Pixels holed = draw_maps("", {panel});
  CHECK(pixel(holed, map.left + 20, map.top + 20) == kNoValue);
  CHECK(finite_range(field).high == 1.0);

  panel.field = at::full({4, 8}, 5.0, at::TensorOptions(at::kDouble));
  panel.low = panel.high = 5.0;
  const Pixels constant = draw_maps("", {panel});
  CHECK(distance(pixel(constant, map.left + 20, map.top + 20), kViridis.at(0.5)) <= 3);
}
