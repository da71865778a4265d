// Names of forcings, the Sun by the Astronomical Almanac, and products of rows and columns.
#include "data/datasets/forcings.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <iterator>
#include <limits>
#include <numbers>
#include <string_view>

#include "src/base/error.h"
#include "src/base/text.h"

namespace vit_hybrid::data {

namespace {

struct ForcingNames {
  Forcing forcing;
  const char* name;
  std::array<std::string_view, 1> others = {};
};

constexpr std::array kForcings = {
    ForcingNames{Forcing::kCosLatitude, "cos_latitude"},
    ForcingNames{Forcing::kSinLatitude, "sin_latitude"},
    ForcingNames{Forcing::kCosLongitude, "cos_longitude"},
    ForcingNames{Forcing::kSinLongitude, "sin_longitude"},
    ForcingNames{Forcing::kCosZenith, "cos_zenith", {"zenith"}},
    ForcingNames{Forcing::kInsolation, "insolation", {"cos_solar_zenith_angle"}},
    ForcingNames{Forcing::kCosLocalTime, "cos_local_time", {"day_progress_cos"}},
    ForcingNames{Forcing::kSinLocalTime, "sin_local_time", {"day_progress_sin"}},
    ForcingNames{Forcing::kCosJulianDay, "cos_julian_day", {"year_progress_cos"}},
    ForcingNames{Forcing::kSinJulianDay, "sin_julian_day", {"year_progress_sin"}},
};

constexpr double kTurn = 2.0 * std::numbers::pi;
constexpr double kSecondsOfTurn = 86400.0;

double radians(double degrees) {
  return degrees * (std::numbers::pi / 180.0);
}

// A moment of a calendar, its season that of a real year.
struct Moment {
  double days_2000 = 0;    // since 2000 January 1, 12 UTC
  double day_of_year = 0;  // since its begin
  double hours = 0;        // of the day, UTC
};

double days_to_year(double year) {  // since the begin of 1970
  const std::chrono::year_month_day begin{std::chrono::year(static_cast<int>(year)), std::chrono::January,
                                          std::chrono::day(1)};
  return static_cast<double>(std::chrono::sys_days(begin).time_since_epoch().count());
}

double year_of(double days) {  // since the begin of 1970
  const std::chrono::year_month_day date{std::chrono::sys_days(std::chrono::days(static_cast<int64_t>(days)))};
  return static_cast<int>(date.year());
}

Moment moment_of(double seconds, const std::string& calendar) {
  constexpr double kMostDays = 1e7;  // 27,000 years
  constexpr double kDaysTo2000 = 10957.5;
  const double days = seconds / kSecondsOfTurn, whole_days = std::floor(days);
  if (!(std::abs(days) < kMostDays)) {
    throw Error(ErrorClass::kBadData, str("the time ", seconds, " s since 1970 is in no year that the Sun is known of"),
                str("allowed are ", kMostDays, " days before and after 1970: correct the times of the data"));
  }
  const double model_year = calendar == "noleap" ? 365.0 : calendar == "all_leap" ? 366.0 : 360.0;
  Moment moment;
  double begin = 0.0;
  if (calendar == "standard") {
    begin = days_to_year(year_of(whole_days));
    moment.day_of_year = days - begin;
  } else {
    const double years = std::floor(days / model_year);
    begin = days_to_year(1970.0 + years);
    moment.day_of_year = (days / model_year - years) * (days_to_year(1971.0 + years) - begin);
  }
  moment.days_2000 = begin + moment.day_of_year - kDaysTo2000;
  moment.hours = (days - whole_days) * 24.0;
  return moment;
}

struct Sun {
  double sin_declination;
  double hour_angle;  // in Greenwich, radians
};

// Michalsky's names and units (degrees, hours) are kept.
Sun sun_at(const Moment& moment) {
  const double n = moment.days_2000;
  const double mean_longitude = 280.460 + 0.9856474 * n;
  const double mean_anomaly = radians(357.528 + 0.9856003 * n);
  const double ecliptic_longitude =
      radians(mean_longitude + 1.915 * std::sin(mean_anomaly) + 0.020 * std::sin(2.0 * mean_anomaly));
  const double obliquity = radians(23.439 - 0.0000004 * n);
  const double right_ascension =
      std::atan2(std::cos(obliquity) * std::sin(ecliptic_longitude), std::cos(ecliptic_longitude));
  const double sidereal_hours = 6.697375 + 0.0657098242 * n + moment.hours;
  return {std::sin(obliquity) * std::sin(ecliptic_longitude), sidereal_hours / 24.0 * kTurn - right_ascension};
}

// Every forcing is offset(row) + factor(row) * column(longitude), but not below `least`.
struct RowsAndColumns {
  std::vector<double> offsets;
  std::vector<double> factors;
  std::vector<double> columns;
  double least = -std::numeric_limits<double>::infinity();
};

template <class Function>
std::vector<double> values_at(const double* points, size_t count, const Function& value) {
  std::vector<double> values;
  std::transform(points, points + count, std::back_inserter(values), [&](double point) { return value(point); });
  return values;
}

RowsAndColumns rows_and_columns(Forcing forcing, const Moment& moment, const Grid& grid, Range rows) {
  const auto num_rows = static_cast<size_t>(rows.size());
  const auto of_rows = [&](const auto& value) {
    return values_at(grid.latitudes.data() + rows.begin, num_rows, value);
  };
  const auto of_columns = [&](const auto& value) {
    return values_at(grid.longitudes.data(), grid.longitudes.size(), value);
  };
  const auto same = [](double value) { return [value](double) { return value; }; };
  const auto by_row = [&](const auto& value) {
    return RowsAndColumns{of_rows(value), of_rows(same(0)), of_columns(same(0))};
  };
  const auto by_column = [&](const auto& value) {
    return RowsAndColumns{of_rows(same(0)), of_rows(same(1)), of_columns(value)};
  };
  const auto sin_degrees = [](double degrees) { return std::sin(radians(degrees)); };
  const auto cos_degrees = [](double degrees) { return std::cos(radians(degrees)); };
  const auto local_time = [&](double longitude) { return (moment.hours / 24.0 + longitude / 360.0) * kTurn; };
  const double julian_day = moment.day_of_year / 365.25 * kTurn;
  switch (forcing) {
    case Forcing::kCosLatitude:
      return by_row(cos_degrees);
    case Forcing::kSinLatitude:
      return by_row(sin_degrees);
    case Forcing::kCosLongitude:
      return by_column(cos_degrees);
    case Forcing::kSinLongitude:
      return by_column(sin_degrees);
    case Forcing::kCosLocalTime:
      return by_column([&](double longitude) { return std::cos(local_time(longitude)); });
    case Forcing::kSinLocalTime:
      return by_column([&](double longitude) { return std::sin(local_time(longitude)); });
    case Forcing::kCosJulianDay:
      return by_row(same(std::cos(julian_day)));
    case Forcing::kSinJulianDay:
      return by_row(same(std::sin(julian_day)));
    case Forcing::kCosZenith:
    case Forcing::kInsolation:
      break;
  }
  const Sun sun = sun_at(moment);
  const double cos_declination = std::sqrt(1.0 - sun.sin_declination * sun.sin_declination);
  RowsAndColumns zenith{of_rows([&](double latitude) { return sun.sin_declination * sin_degrees(latitude); }),
                        of_rows([&](double latitude) { return cos_declination * cos_degrees(latitude); }),
                        of_columns([&](double longitude) { return std::cos(sun.hour_angle + radians(longitude)); })};
  if (forcing == Forcing::kInsolation) {
    zenith.least = 0.0;
  }
  return zenith;
}

}  // namespace

std::optional<Forcing> forcing_named(const std::string& name) {
  const auto found = std::find_if(kForcings.begin(), kForcings.end(), [&](const ForcingNames& names) {
    return !name.empty() && (names.name == name || names.others.front() == name);
  });
  return found == kForcings.end() ? std::nullopt : std::optional(found->forcing);
}

const char* forcing_name(Forcing forcing) {
  return std::find_if(kForcings.begin(), kForcings.end(), [&](const auto& names) { return names.forcing == forcing; })
      ->name;
}

std::vector<std::string> forcing_names() {
  std::vector<std::string> names;
  std::transform(kForcings.begin(), kForcings.end(), std::back_inserter(names),
                 [](const ForcingNames& forcing) { return forcing.name; });
  return names;
}

bool depends_on_time(Forcing forcing) {
  return forcing != Forcing::kCosLatitude && forcing != Forcing::kSinLatitude && forcing != Forcing::kCosLongitude &&
         forcing != Forcing::kSinLongitude;
}

void compute_forcing(Forcing forcing, double seconds, const std::string& calendar, const Grid& grid, Range rows,
                     float* out) {
  VH_ASSERT(rows.begin >= 0 && rows.end <= std::ssize(grid.latitudes) && !grid.longitudes.empty(), grid_text(grid));
  const Moment moment = depends_on_time(forcing) ? moment_of(seconds, calendar) : Moment();
  const RowsAndColumns parts = rows_and_columns(forcing, moment, grid, rows);
  const double* const columns = parts.columns.data();
  const size_t num_columns = parts.columns.size();
  for (size_t i = 0; i < parts.offsets.size(); ++i, out += num_columns) {
    const double offset = parts.offsets[i], factor = parts.factors[i], least = parts.least;
    for (size_t j = 0; j < num_columns; ++j) {
      out[j] = static_cast<float>(std::max(offset + factor * columns[j], least));
    }
  }
}

}  // namespace vit_hybrid::data
