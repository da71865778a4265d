// Forcings against the Sun of an independent package, closed forms, ranges of rows, and other calendars.
#include "data/datasets/forcings.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <string>
#include <vector>

#include "src/base/error.h"
#include "tests/support/contains.h"
#include "tests/support/thrown_error.h"

namespace vit_hybrid::data {

namespace {

constexpr double kDay = 86400.0;
constexpr double kRounding = 1e-7;  // of float32

float forcing_at(Forcing forcing, double seconds, double latitude, double longitude,
                 const std::string& calendar = "standard") {
  float value = 0.0F;
  compute_forcing(forcing, seconds, calendar, {{latitude}, {longitude}}, {0, 1}, &value);
  return value;
}

std::vector<float> field_of(Forcing forcing, double seconds, const Grid& grid, Range rows) {
  std::vector<float> values(static_cast<size_t>(rows.size()) * grid.longitudes.size());
  compute_forcing(forcing, seconds, "standard", grid, rows, values.data());
  return values;
}

struct SunHeight {
  double seconds;
  double latitude;
  double longitude;
  double cos_zenith;
};

// The cosine of `zenith` (no refraction) of pvlib 0.16.1, solarposition.spa_python(time, latitude, longitude,
// altitude=0, delta_t=None), NREL's algorithm, right to 0.0003 degrees.
const std::vector<SunHeight> kPvlib = {
    {-347155200, 0, 0, -0.9198884},            // 1959-01-01 00:00
    {-331192800, -33.75, 151.25, -0.5968984},  // 1959-07-04 18:00
    {-184248000, 52.5, 13.25, 0.4853849},      // 1964-02-29 12:00
    {77932800, 70, 180, 0.6876089},            // 1972-06-21 00:00, the midnight Sun's noon
    {290844000, 90, 0, 0.0001432},             // 1979-03-21 06:00
    {598730400, -90, 45, 0.3977946},           // 1988-12-21 18:00
    {654091200, 0, -179.75, -0.9993038},       // 1990-09-23 12:00
    {951804000, -75, 359.75, 0.1165410},       // 2000-02-29 06:00
    {978285600, 19.5, -155.5, 0.2177003},      // 2000-12-31 18:00
    {1340226000, -45.25, 80.5, -0.8111709},    // 2012-06-20 21:00
    {1539572400, 35.75, 139.75, 0.7084010},    // 2018-10-15 03:00
    {1582934400, 66.5, -90, -0.1040313},       // 2020-02-29 00:00
    {1734782400, -66.25, 14.5, 0.7211013},     // 2024-12-21 12:00
    {1719788400, 80, -30, 0.2751493},          // 2024-06-30 23:00, the midnight Sun
};

}  // namespace

TEST_CASE("forcings: the Sun's height is another package's to a hundredth of a degree") {
  const double tolerance = 0.01 * std::numbers::pi / 180.0;
  for (const SunHeight& sun : kPvlib) {
    CAPTURE(sun.seconds);
    const float zenith = forcing_at(Forcing::kCosZenith, sun.seconds, sun.latitude, sun.longitude);
    CHECK(std::abs(zenith - sun.cos_zenith) < tolerance);
    CHECK(forcing_at(Forcing::kInsolation, sun.seconds, sun.latitude, sun.longitude) == std::max(zenith, 0.0F));
  }
}

TEST_CASE("forcings: closed forms of place, hour and season") {
  const double noon = 365.25 * 30 * kDay;  // 2000-01-01 12:00
  for (const auto& [latitude, longitude] : {std::pair(-90.0, 0.0), {-12.5, 359.75}, {47.25, -120.0}, {90.0, 180.0}}) {
    const double phi = latitude * std::numbers::pi / 180, lambda = longitude * std::numbers::pi / 180;
    const auto near = [&, latitude = latitude, longitude = longitude](Forcing forcing, double seconds, double value) {
      CHECK(std::abs(forcing_at(forcing, seconds, latitude, longitude) - value) < kRounding);
    };
    near(Forcing::kCosLatitude, 0, std::cos(phi));
    near(Forcing::kSinLatitude, 0, std::sin(phi));
    near(Forcing::kCosLongitude, 0, std::cos(lambda));
    near(Forcing::kSinLongitude, 0, std::sin(lambda));
    // 2000-01-01 12:00, and 18:00 of 2024-12-31, the last of 366 days.
    near(Forcing::kCosLocalTime, noon, -std::cos(lambda));
    near(Forcing::kSinLocalTime, noon, -std::sin(lambda));
    near(Forcing::kSinLocalTime, 1735668000, -std::cos(lambda));
    near(Forcing::kCosJulianDay, noon, std::cos(std::numbers::pi / 365.25));
    near(Forcing::kSinJulianDay, noon, std::sin(std::numbers::pi / 365.25));
    near(Forcing::kSinJulianDay, 1735668000, std::sin(2 * std::numbers::pi * 365.75 / 365.25));
    near(Forcing::kSinJulianDay, -kDay, std::sin(2 * std::numbers::pi * 364 / 365.25));  // 1969-12-31
  }
}

TEST_CASE("forcings: parts of the rows are those of all, and longitudes may count from -180") {
  Grid grid{{}, {}}, west{{}, {}};
  for (int i = 0; i < 19; ++i)
    grid.latitudes.push_back(90 - 10 * i);
  for (int j = 0; j < 36; ++j)
    grid.longitudes.push_back(10 * j);
  west.latitudes = grid.latitudes;
  for (const double longitude : grid.longitudes) {
    west.longitudes.push_back(longitude < 180 ? longitude : longitude - 360);
  }
  for (const std::string& name : forcing_names()) {
    CAPTURE(name);
    const Forcing forcing = *forcing_named(name);
    const double seconds = 1583017200.0;  // 2020-02-29 23:00
    const std::vector<float> whole = field_of(forcing, seconds, grid, {0, 19});
    const std::vector<float> part = field_of(forcing, seconds, grid, {5, 12});
    CHECK(std::equal(part.begin(), part.end(), whole.begin() + 5L * 36));
    CHECK(field_of(forcing, seconds, grid, {7, 7}).empty());
    const std::vector<float> other = field_of(forcing, seconds, west, {0, 19});
    CHECK(std::equal(whole.begin(), whole.end(), other.begin(),
                     [](float a, float b) { return std::abs(a - b) < 2 * kRounding; }));
    CHECK(depends_on_time(forcing) != (field_of(forcing, 0, grid, {0, 19}) == whole));
    for (size_t i = 0; i < 19; ++i) {  // each point is that of its own place
      for (const size_t j : {size_t{0}, size_t{13}, size_t{35}}) {
        CHECK(whole[i * 36 + j] == forcing_at(forcing, seconds, grid.latitudes[i], grid.longitudes[j]));
      }
    }
  }
}

TEST_CASE("forcings: names, and those of other programs") {
  CHECK(forcing_names().size() == 10);
  for (const std::string& name : forcing_names()) {
    CHECK(forcing_name(*forcing_named(name)) == name);
  }
  for (const auto& [name, meant] : {std::pair("zenith", "cos_zenith"),
                                    {"cos_solar_zenith_angle", "insolation"},
                                    {"day_progress_cos", "cos_local_time"},
                                    {"day_progress_sin", "sin_local_time"},
                                    {"year_progress_cos", "cos_julian_day"},
                                    {"year_progress_sin", "sin_julian_day"}}) {
    REQUIRE(forcing_named(name));
    CHECK(forcing_name(*forcing_named(name)) == std::string(meant));
  }
  for (const char* name : {"", "z", "lsm", "Zenith", "cos_zenith "}) {
    CHECK(!forcing_named(name));
  }
}

TEST_CASE("forcings: in other calendars the hour is the model's, the season that fraction of the real year") {
  const auto zenith = [](double seconds, const std::string& calendar, double longitude = 0.0) {
    return forcing_at(Forcing::kCosZenith, seconds, 23.0, longitude, calendar);
  };
  // 2001-01-01 to 2001-12-31: of a year of 365 days, 31 years behind 1970, all days are the real ones.
  for (const double day : {0.0, 58.25, 181.5, 364.75}) {
    CHECK(zenith((31 * 365 + day) * kDay, "noleap") == zenith((31 * 365 + 8 + day) * kDay, "standard"));
    CHECK(zenith((30 * 366 + day) * kDay, "all_leap") == zenith((30 * 365 + 7 + day) * kDay, "standard"));
  }
  // A quarter and three quarters of 2001 in 360 days, at 06:00 and 18:00 as there, at which the season goes on by 0.76
  // days at most, the declination by 0.3 degrees; days taken as they are would be 3.75 of 365 behind.
  for (const double quarters : {1.0, 3.0}) {
    const double real = (31 * 365 + 8 + quarters * 91.25) * kDay;
    CHECK(std::abs(zenith((31 * 360 + quarters * 90) * kDay + quarters * 6 * 3600, "360_day") -
                   zenith(real, "standard")) < 0.004);
    CHECK(forcing_at(Forcing::kCosJulianDay, (31 * 360 + quarters * 90) * kDay, 0, 0, "360_day") ==
          forcing_at(Forcing::kCosJulianDay, real, 0, 0, "standard"));
  }
  // The Sun goes round once a day of each calendar: noon is at 12 hours on average, within the equation of time.
  for (const char* calendar : {"standard", "noleap", "all_leap", "360_day"}) {
    for (int day = 0; day < 400; day += 13) {
      const double morning = zenith((12345 + day) * kDay + 9 * 3600, calendar);
      const double noon = zenith((12345 + day) * kDay + 12 * 3600, calendar);
      const double evening = zenith((12345 + day) * kDay + 15 * 3600, calendar);
      CHECK(noon > std::max(morning, evening));
      CHECK(std::abs(morning - evening) < 0.11);
    }
  }
  for (const double time : {1e300, -1e13, std::numeric_limits<double>::quiet_NaN()}) {
    const Error error = testing::thrown_error([&] { zenith(time, "noleap"); });
    CHECK(error.error_class() == ErrorClass::kBadData);
    CHECK(testing::contains(error.message(), "is in no year"));
  }
}

TEST_CASE("times: all rows in seconds as the axis has the first and the last") {
  for (const char* units :
       {"hours since 1900-01-01 00:00:00", "days since 1850-01-01", "seconds since 1970-01-01T06:30"}) {
    for (const char* calendar : {"", "noleap", "360_day"}) {
      const StoredTimes times{{6.0, 7.25, 1e6 / 3}, units, calendar};
      const TimeAxis axis = time_axis(times.values, units, calendar);
      const std::vector<double> seconds = seconds_of_times(times, axis);
      REQUIRE(seconds.size() == 3);
      CHECK(seconds.front() == axis.first);
      CHECK(seconds.back() == axis.last);
      CHECK(seconds[1] > seconds[0]);
    }
  }
  const StoredTimes era5{{0, 6}, "hours since 1900-01-01", "proleptic_gregorian"};
  CHECK(seconds_of_times(era5, time_axis(era5.values, era5.units, era5.calendar)) ==
        std::vector<double>{-2208988800.0, -2208967200.0});
}

}  // namespace vit_hybrid::data
