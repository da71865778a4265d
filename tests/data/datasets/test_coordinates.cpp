// Grids of fields: weights of rows against closed forms, comparison and refusals; days of the year; names of classes;
// what checkpoints say of the data of a training.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <numeric>
#include <vector>

#include "data/datasets/class_names.h"
#include "data/datasets/coordinates.h"
#include "src/base/error.h"
#include "src/checkpoint/format.h"
#include "tests/support/contains.h"
#include "tests/support/thrown_error.h"

using namespace vit_hybrid;
using namespace vit_hybrid::data;
using testing::contains;
using testing::thrown_error;
using train::TrainingData;

namespace {

std::vector<double> points(double first, double last, int count) {
  std::vector<double> out;
  for (int i = 0; i < count; ++i) {
    out.push_back(count == 1 ? first : first + (last - first) * i / (count - 1));
  }
  return out;
}

void check_close(const std::vector<double>& a, const std::vector<double>& b, double largest) {
  REQUIRE(a.size() == b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    CHECK(std::abs(a[i] - b[i]) <= largest);
  }
}

Error refused(const Grid& grid) {
  const Error error = thrown_error([&] { check_grid(grid, "a.h5"); });
  CHECK((error.error_class() == ErrorClass::kBadData));
  CHECK(contains(error.message(), "a.h5"));
  return error;
}

}  // namespace

TEST_CASE("latitude weights: without latitudes those of the reference workload, bit for bit") {
  check_close(latitude_weights({}, 5),  // 90, 45, 0, -45, -90 degrees
              {0.0, 5.0 * std::sqrt(0.5) / (1.0 + std::sqrt(2.0)), 5.0 / (1.0 + std::sqrt(2.0)),
               5.0 * std::sqrt(0.5) / (1.0 + std::sqrt(2.0)), 0.0},
              1e-14);
  for (const int64_t height : {3, 12, 360, 721}) {
    std::vector<double> expected;  // w_i = H cos(phi_i) / sum_k cos(phi_k), phi_i = 90 - 180 i/(H-1)
    double sum = 0.0;
    for (int64_t i = 0; i < height; ++i) {
      const double phi = std::numbers::pi * (0.5 - static_cast<double>(i) / static_cast<double>(height - 1));
      expected.push_back(std::cos(phi));
      sum += expected.back();
    }
    for (double& weight : expected) {
      weight *= static_cast<double>(height) / sum;
    }
    CHECK(latitude_weights({}, height) == expected);
    check_close(latitude_weights({points(90, -90, static_cast<int>(height)), {}}, height), expected, 1e-12);
  }
  CHECK(latitude_weights({}, 1) == std::vector<double>{1.0});
  CHECK(latitude_weights({}, 2) == std::vector<double>{1.0, 1.0});  // both poles, of no area: they count alike
}

TEST_CASE("coordinates: rows weigh their area, the poles half a cell, in any order of the rows") {
  const double pi = std::numbers::pi;
  const auto band = [&](double from, double to) { return std::sin(to * pi / 180) - std::sin(from * pi / 180); };
  // Together they are the sphere: 2.
  check_close(cell_area_weights({{-90, -30, 0, 90}, {}}, 4),
              {2 * band(-90, -60), 2 * band(-60, -15), 2 * band(-15, 45), 2 * band(45, 90)}, 1e-14);
  check_close(cell_area_weights({{60, 0, -60}, {}}, 3), {1.5 * band(30, 90), 1.5 * band(-30, 30), 1.5 * band(30, 90)},
              1e-14);
  // A part of the globe: as far beyond its ends as half way to the neighbours.
  const double whole = band(5, 35);
  check_close(cell_area_weights({{10, 20, 30}, {}}, 3),
              {3 * band(5, 15) / whole, 3 * band(15, 25) / whole, 3 * band(25, 35) / whole}, 1e-14);
  check_close(cell_area_weights({}, 721), cell_area_weights({points(90, -90, 721), {}}, 721), 1e-10);
  CHECK(cell_area_weights({}, 1) == std::vector<double>{1.0});
}

TEST_CASE("latitude weights: those of the file's latitudes, from the south, of a region, of a Gaussian grid") {
  const std::vector<double> region = {75.0, 70.0, 65.0};
  const double sum = std::cos(75 * std::numbers::pi / 180) + std::cos(70 * std::numbers::pi / 180) +
                     std::cos(65 * std::numbers::pi / 180);
  std::vector<double> expected;
  for (const double latitude : region) {
    expected.push_back(3 * std::cos(latitude * std::numbers::pi / 180) / sum);
  }
  CHECK(expected.front() < 0.8);  // not alike: 75 N counts less than 65 N
  check_close(latitude_weights({region, {}}, 3), expected, 1e-14);
  std::reverse(expected.begin(), expected.end());
  check_close(latitude_weights({{65.0, 70.0, 75.0}, {}}, 3), expected, 1e-14);
  check_close(latitude_weights({{60.0}, {}}, 1), {1.0}, 1e-15);
  check_close(latitude_weights({{90.0, -90.0}, {}}, 2), {1.0, 1.0}, 0.0);
  CHECK(latitude_weights({{90.00001, 0.0, -90.00001}, {}}, 3) == std::vector<double>{0.0, 3.0, 0.0});
  const auto many = latitude_weights({{87.8638, 85.0965, 82.3129, -12.5, -80.0}, {}}, 5);
  CHECK(std::accumulate(many.begin(), many.end(), 0.0) == doctest::Approx(5.0).epsilon(1e-14));
}

TEST_CASE("grid: what is none is refused with its place and value") {
  check_grid({}, "a.h5");
  check_grid({points(90, -90, 721), points(0, 359.75, 1440)}, "a.h5");
  check_grid({points(-90, 90, 3), points(-180, 180, 5)}, "a.h5");
  check_grid({{-90.0, 0.0, -90.0 + 1800 * 0.1 + 1e-13}, {}}, "a.h5");  // as adding steps up makes it
  CHECK(contains(refused({{90.0, 95.0}, {}}).message(), "the latitude 1 is 95; allowed: -90 to 90"));
  CHECK(contains(refused({{10.0, std::nan("")}, {}}).message(), "the latitude 1 is nan"));
  CHECK(contains(refused({{}, {0.0, std::numeric_limits<double>::infinity()}}).message(), "the longitude 1 is inf"));
  CHECK(
      contains(refused({{10.0, 5.0, 6.0}, {}}).message(), "neither grow nor fall throughout: 5 is followed by 6 at 2"));
  CHECK(contains(refused({{5.0, 5.0}, {}}).message(), "neither grow nor fall"));
  CHECK(contains(refused({{}, points(0, 540, 7)}).message(), "go round more than once"));
}

TEST_CASE("grid: longitudes go on where they wrap, and points are the same to rounding") {
  std::vector<double> wrapped = {350.0, 355.0, 0.0, 5.0};
  unwrap_longitudes(wrapped);
  CHECK(wrapped == std::vector<double>{350.0, 355.0, 360.0, 365.0});
  std::vector<double> dateline = {170.0, 175.0, -180.0, -175.0};
  unwrap_longitudes(dateline);
  CHECK(dateline == std::vector<double>{170.0, 175.0, 180.0, 185.0});
  std::vector<double> plain = points(0, 359.5, 720);
  unwrap_longitudes(plain);
  CHECK(plain == points(0, 359.5, 720));

  const Grid grid{points(90, -90, 7), points(0, 300, 6)};
  Grid rounded = grid;
  for (double& longitude : rounded.longitudes) {
    longitude = static_cast<float>(longitude + 1e-5);
  }
  CHECK(same_grid(grid, rounded));
  CHECK(same_grid(grid, {}));
  CHECK(same_grid(grid, {{}, grid.longitudes}));
  Grid turned = grid;
  std::reverse(turned.latitudes.begin(), turned.latitudes.end());
  CHECK_FALSE(same_grid(grid, turned));
  CHECK_FALSE(same_grid(grid, {{}, points(0, 300, 7)}));
  CHECK(joined_grid({grid.latitudes, {}}, grid) == grid);
  CHECK(grid_text(grid) == "7 latitudes from 90 to -90, 6 longitudes from 0 to 300");
  CHECK(grid_text({}) == "no latitudes, no longitudes");
}

TEST_CASE("dates: the day of the year and the seconds of the day, in every calendar") {
  struct Calendar {
    const char* name;
    bool (*is_leap)(int64_t year);
    int64_t days;  // of other years
  };
  const std::vector<Calendar> calendars = {
      {"standard", [](int64_t year) { return year % 4 == 0 && (year % 100 != 0 || year % 400 == 0); }, 365},
      {"noleap", [](int64_t) { return false; }, 365},
      {"all_leap", [](int64_t) { return true; }, 365},
      {"360_day", [](int64_t) { return false; }, 360}};
  for (const Calendar& calendar : calendars) {
    const auto length = [&](int64_t year) { return calendar.days + (calendar.is_leap(year) ? 1 : 0); };
    int64_t days = 0;  // since 1970
    for (int64_t year = 1969; year >= 1890; --year) {
      days -= length(year);
    }
    int64_t wrong = 0;
    for (int64_t year = 1890; year <= 2110; ++year) {
      for (int64_t day = 1; day <= length(year); ++day, ++days) {
        for (const double seconds : {0.0, 0.5, 21600.0, 86399.0}) {
          const DayTime time = day_time(static_cast<double>(days) * 86400.0 + seconds, calendar.name);
          wrong += time.year != year || time.day_of_year != day || time.days_in_year != length(year) ||
                   time.seconds != seconds;
        }
      }
    }
    CHECK_MESSAGE(wrong == 0, calendar.name);
  }
  for (const double seconds : {1e13, -1e13, std::numeric_limits<double>::quiet_NaN()}) {
    const Error error = thrown_error([&] { day_time(seconds, "standard"); });
    CHECK((error.error_class() == ErrorClass::kBadData));
  }
}

TEST_CASE("dates: rows of a span, rows beyond it that may be read, and rows of single dates") {
  const StoredTimes times = {{0, 6, 12, 18, 24, 30, 36, 42, 48, 54}, "hours since 2016-01-30", "", ""};
  const TimeAxis axis = time_axis(times.values, times.units, times.calendar);
  const auto rows = [&](const AskedDates& dates, DateRows which = DateRows::kWithReach) {
    return rows_of_dates(dates, which, times.values, axis, "a.nc");
  };
  CHECK((rows({.span = "2016-01-31"}) == Range{4, 8}));
  CHECK((rows({"2016-01-31", {.rows = 2}, {.rows = 1}}, DateRows::kOfSpan) == Range{4, 8}));
  CHECK((rows({"2016-01-31", {.rows = 2}, {.rows = 1}}) == Range{2, 9}));
  CHECK((rows({"2016-01-31", {.rows = 0, .hours = 6}, {.rows = 0}}) == Range{3, 8}));
  CHECK((rows({"2016-01-31", {.rows = 1, .hours = 12}, {.rows = 1000000000000}}) == Range{2, 10}));
  CHECK((rows({.span = "2016-02"}) == Range{8, 10}));
  CHECK(rows({.span = "2015"}).empty());
  CHECK((rows({"2016-02-02", {.rows = 0, .hours = 24}, {.rows = 0}}) == Range{7, 10}));  // none of the dates themselves

  const auto at = [&](const std::vector<std::string>& dates) { return rows_at_dates(dates, times, axis, "a.zarr"); };
  using Rows = std::vector<int64_t>;
  CHECK(at({}).empty());
  CHECK(at({"2016-02-01T00:00:00", "2016-01-30T06:00:00", "2016-01-30 06:00"}) == Rows{1, 8});
  CHECK(at({"2016-01-30", "2016-01-30T03:00:00", "1999-12-31T18:00:00", "2016-02-03T00:00:00"}) == Rows{0});
  for (const char* text : {"", "tomorrow", "2016-02-30T00:00:00", "2016-01-30T06:00:00+02:00"}) {
    CHECK(contains(thrown_error([&] { at({text}); }).message(), "which is no date"));
  }
}

TEST_CASE("class names: numbers by name, and what is not known is named") {
  CHECK(class_numbers("stripe cat,circle", "circle,square,stripe cat", "a.h5") == std::vector<int64_t>{2, 0});
  const Error unknown = thrown_error([] { class_numbers("circle,dog,cow", "circle,square", "a.h5"); });
  CHECK((unknown.error_class() == ErrorClass::kBadData));
  CHECK(unknown.message() ==
        "a.h5 has classes that the model was not trained on: 'dog', 'cow'; it knows circle, square");
  CHECK(contains(thrown_error([] { class_numbers("a", "a,b,a", "x.h5"); }).message(), "have the name 'a'"));
  CHECK(class_difference("a,b", "x", "a,c", "y") == "class 1 is 'b' in x and 'c' in y");
  CHECK(class_difference("a,b", "x", "a", "y") == "class 1 is 'b' in x and not there in y");
  CHECK(class_difference("a,b", "x", "", "y").empty());
  const std::string wild = "\x1b[2J" + std::string(1000, 'a');
  for (const std::string& text : {class_difference(wild, "x", "b", "y"),
                                  std::string(thrown_error([&] { class_numbers(wild, "a", "x.h5"); }).message()),
                                  std::string(thrown_error([&] { class_numbers("a", wild, "x.h5"); }).message())}) {
    CHECK_MESSAGE(contains(text, "\\x1b[2Jaaa"), text);
    CHECK(text.find('\x1b') == std::string::npos);
    CHECK(text.size() < 600);
  }
}

TEST_CASE("training data: in what others differ, and what is known by one side alone does not") {
  TrainingData trained;
  trained.channels = "u,v";
  trained.class_names = "cat,dog";
  trained.means = {2.0, -50.0};
  trained.stds = {3.0, 20.0};
  trained.grid.latitudes = {75.0, 65.0};
  CHECK(statistics_difference(trained, trained).empty());
  CHECK(statistics_difference(trained, {}).empty());
  TrainingData other = trained;
  other.means[1] = static_cast<float>(-50.0 + 1e-6);  // the same numbers in another type
  CHECK(statistics_difference(trained, other).empty());
  other.stds[1] = 20.5;
  CHECK(statistics_difference(trained, other) == "channel 1 (v) has the mean " + str(other.means[1]) +
                                                     " and the deviation 20.5, the model was trained with -50 and 20");
  other.means.push_back(0.0);
  CHECK(contains(statistics_difference(trained, other), "statistics of 3 channels"));
  CHECK(classes_difference(trained, "dog,cat") == "class 0 is 'dog' in the data and 'cat' in the checkpoint");
  CHECK(grid_difference(trained, {{65.0, 75.0}, {}}) ==
        "the data have 2 latitudes from 65 to 75, no longitudes, the model was trained on 2 latitudes from 75 to 65, "
        "no longitudes");
  CHECK(grid_difference(trained, {}).empty());
}

TEST_CASE("training data: JSON and back, and what is no training's is refused") {
  TrainingData data;
  data.channels = "u,v";
  data.class_names = "cat,\xff dog";  // no UTF-8: becomes a mark of it
  data.means = {0.1, -1e-300};
  data.stds = {1.0 / 3.0, 20.0};
  data.grid = {points(75, 65, 3), points(0, 10, 2)};
  const TrainingData back = train::training_data_of(train::training_data_json(data), "x");
  CHECK(back.channels == data.channels);
  CHECK(contains(back.class_names, "dog"));
  CHECK(back.means == data.means);
  CHECK(back.stds == data.stds);
  CHECK((back.grid == data.grid));
  CHECK((train::training_data_of("{}", "x").grid == Grid()));
  for (const char* text : {"", "[1", "{\"means\": \"u\"}", "{\"means\": [1]}", "{\"means\": [1], \"stds\": [0]}",
                           "{\"latitudes\": [1, 100]}", "{\"channels\": 7}"}) {
    CAPTURE(text);
    CHECK((thrown_error([&] { train::training_data_of(text, "x"); }).error_class() == ErrorClass::kBadData));
  }
}
