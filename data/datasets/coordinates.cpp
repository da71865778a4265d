// Weights and checks of latitudes and longitudes, CF times, and the recognition of a file's order.
#include "data/datasets/coordinates.h"

#include <xxhash.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <iterator>
#include <map>
#include <numbers>
#include <numeric>
#include <optional>
#include <string_view>
#include <utility>

#include "src/base/error.h"
#include "src/base/text.h"
#include "src/base/utf8.h"

namespace vit_hybrid::data {

namespace {

constexpr double kSamePoint = 1e-4;          // degrees
constexpr double kNoArea = 1e-9;             // sum of the cosines of rows at the poles, which rounding leaves
constexpr double kIntervalTolerance = 0.25;  // months differ by less, a row that is missing makes more

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

using Kind = DimKind;

// Names and units of one kind of dim; those of latitudes and longitudes are the CF conventions'.
struct DimWords {
  Kind kind;
  std::vector<std::string_view> names;
  std::vector<std::string_view> units;
};

const std::vector<DimWords>& dim_words() {
  static const std::vector<DimWords> kWords = {
      {Kind::kLatitude,
       {"latitude", "lat"},
       {"degrees_north", "degree_north", "degree_N", "degrees_N", "degreeN", "degreesN"}},
      {Kind::kLongitude,
       {"longitude", "lon"},
       {"degrees_east", "degree_east", "degree_E", "degrees_E", "degreeE", "degreesE"}},
      {Kind::kLevel,
       {"level", "levels", "lev", "plev", "pressure_level", "pressure", "isobaricInhPa"},
       {"hPa", "millibars", "millibar", "mbar", "Pa"}},
      {Kind::kChannel, {"channel", "channels"}, {}},
      {Kind::kTime, {"time", "valid_time"}, {}}};
  return kWords;
}

constexpr int64_t kColours = 3;
constexpr int64_t kMuchSmaller = 4;  // times

// In Python, for a dataset that the memory holds.
std::string transposition(const std::string& name, const char* order) {
  return str("python3 -c \"import h5py; h5py.File('NEW.h5', 'w')['", name, "'] = h5py.File('OLD.h5')['", name,
             "'][:].transpose(", order, ")\", and docs/data.md has it for large files");
}

// Of "a.h5: dataset 'fields'" the name.
std::string name_in(const std::string& where, const char* otherwise) {
  const size_t end = where.rfind('\'');
  const size_t begin = end == std::string::npos || end == 0 ? std::string::npos : where.rfind('\'', end - 1);
  return begin == std::string::npos ? otherwise : where.substr(begin + 1, end - begin - 1);
}

// What says that the channels are last; nothing where they are not, or something says otherwise.
std::string sign_of_channels_last(const FieldOrder& order) {
  const auto& [time, first, second, last] = order.kinds;
  const auto& extents = order.shape;
  if (first == Kind::kLatitude || first == Kind::kLongitude) {
    return str("dim 1 is a ", first == Kind::kLatitude ? "latitude" : "longitude");
  }
  if (last == Kind::kChannel) {
    return "dim 3 is that of the channels";
  }
  if (first == Kind::kChannel || second != Kind::kUnknown || last != Kind::kUnknown) {
    return {};
  }
  if (order.num_channel_names > 0 && extents[1] != extents[3]) {
    if (order.num_channel_names == extents[1] || order.num_channel_names == extents[3]) {
      return order.num_channel_names == extents[3] ? str(extents[3], " channels are named") : "";
    }
  }
  if (order.num_latitudes > 0 && order.num_longitudes > 0) {
    const bool is_right = order.num_latitudes == extents[2] && order.num_longitudes == extents[3];
    const bool is_last = order.num_latitudes == extents[1] && order.num_longitudes == extents[2];
    if (is_right != is_last) {
      return is_last ? str("there are ", extents[1], " latitudes and ", extents[2], " longitudes") : "";
    }
  }
  const bool is_small = kMuchSmaller * extents[3] <= std::min(extents[1], extents[2]);
  return is_small ? str("dim 3 is small beside dims 1 and 2, and no names of channels (attribute 'channels') or "
                        "coordinates say that they lie otherwise")
                  : "";
}

constexpr double kSecondsOfDay = 86400.0;

std::optional<double> seconds_of(const std::string& unit) {
  static const std::map<std::string, double> kUnits = {{"days", kSecondsOfDay},
                                                       {"day", kSecondsOfDay},
                                                       {"d", kSecondsOfDay},
                                                       {"hours", 3600},
                                                       {"hour", 3600},
                                                       {"hrs", 3600},
                                                       {"hr", 3600},
                                                       {"h", 3600},
                                                       {"minutes", 60},
                                                       {"minute", 60},
                                                       {"mins", 60},
                                                       {"min", 60},
                                                       {"seconds", 1},
                                                       {"second", 1},
                                                       {"secs", 1},
                                                       {"sec", 1},
                                                       {"s", 1},
                                                       {"milliseconds", 1e-3},
                                                       {"ms", 1e-3},
                                                       {"microseconds", 1e-6},
                                                       {"us", 1e-6},
                                                       {"nanoseconds", 1e-9},
                                                       {"ns", 1e-9}};
  const auto found = kUnits.find(unit);
  return found == kUnits.end() ? std::nullopt : std::optional(found->second);
}

// The four kinds that order files; nothing for others ("julian").
std::optional<std::string> calendar_kind(const std::string& calendar) {
  static const std::map<std::string, std::string> kKinds = {
      {"", "standard"},      {"standard", "standard"}, {"gregorian", "standard"}, {"proleptic_gregorian", "standard"},
      {"noleap", "noleap"},  {"365_day", "noleap"},    {"all_leap", "all_leap"},  {"366_day", "all_leap"},
      {"360_day", "360_day"}};
  const auto found = kKinds.find(calendar);
  return found == kKinds.end() ? std::nullopt : std::optional(found->second);
}

struct Date {
  int year = 0;
  unsigned month = 1;
  unsigned day = 1;
};

// Since the begin of 1970; nothing for no date.
std::optional<int64_t> days_of(const Date& date, const std::string& calendar) {
  constexpr int kMostYears = 32767;  // of std::chrono
  if (date.month < 1 || date.month > 12 || date.day < 1 || date.day > 31 || std::abs(date.year) > kMostYears) {
    return std::nullopt;
  }
  if (calendar == "standard") {
    const std::chrono::year_month_day named{std::chrono::year{date.year}, std::chrono::month{date.month},
                                            std::chrono::day{date.day}};
    return named.ok() ? std::optional(std::chrono::sys_days(named).time_since_epoch().count()) : std::nullopt;
  }
  const int64_t years = date.year - 1970;
  if (calendar == "360_day") {
    return 360 * years + 30 * (date.month - 1) + date.day - 1;
  }
  static constexpr std::array<int64_t, 12> kBefore = {0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334};
  const int64_t leap = calendar == "all_leap" ? 1 : 0;
  return (365 + leap) * years + kBefore[date.month - 1] + (date.month > 2 ? leap : 0) + date.day - 1;
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

std::vector<double> cell_area_weights(const Grid& grid, int64_t height) {
  constexpr double kPole = std::numbers::pi / 2.0;
  VH_ASSERT(grid.latitudes.empty() || std::ssize(grid.latitudes) == height, "one latitude for each row");
  std::vector<double> phi(static_cast<size_t>(height));
  for (int64_t i = 0; i < height; ++i) {
    const auto row = static_cast<size_t>(i);
    phi[row] = grid.latitudes.empty() ? row_latitude(i, height) : grid.latitudes[row] * (std::numbers::pi / 180.0);
  }
  if (height < 2) {
    return std::vector<double>(phi.size(), 1.0);
  }
  // The sine of the bound before a row; beyond an end the row's other neighbour, turned over.
  const auto bound = [&](size_t row) {
    const size_t last = phi.size() - 1;
    const double middle = row == 0     ? 1.5 * phi[0] - 0.5 * phi[1]
                          : row > last ? 1.5 * phi[last] - 0.5 * phi[last - 1]
                                       : 0.5 * (phi[row - 1] + phi[row]);
    return std::sin(std::clamp(middle, -kPole, kPole));
  };
  std::vector<double> weights(phi.size());
  const double whole = std::abs(bound(phi.size()) - bound(0));
  for (size_t row = 0; row < weights.size(); ++row) {
    weights[row] = std::abs(bound(row + 1) - bound(row)) / whole * static_cast<double>(height);
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

DimKind dim_kind(const std::string& name, const std::string& units) {
  const auto has = [](const std::vector<std::string_view>& list, const std::string& text) {
    return std::find(list.begin(), list.end(), text) != list.end();
  };
  for (const DimWords& words : dim_words()) {
    if (has(words.names, name) || has(words.units, units)) {
      return words.kind;
    }
  }
  return units.find(" since ") != std::string::npos ? Kind::kTime : name.empty() ? Kind::kUnknown : Kind::kOther;
}

void require_channels_first(const FieldOrder& order, const std::string& where) {
  if (order.shape.size() != order.kinds.size() || order.shape[3] == 0) {
    return;
  }
  const std::string sign = sign_of_channels_last(order);
  if (sign.empty()) {
    return;
  }
  const bool is_turned = order.kinds[1] == Kind::kLongitude;
  throw Error(ErrorClass::kBadData,
              str(where, " (", join(order.shape), ") has its channels last, (time, ",
                  is_turned ? "longitude, latitude" : "latitude, longitude", ", channel): ", sign,
                  "; needed is (time, channel, latitude, longitude)"),
              transposition(name_in(where, "fields"), is_turned ? "0, 3, 2, 1" : "0, 3, 1, 2"));
}

void require_colours_last(const std::vector<int64_t>& shape, const std::string& where) {
  if (shape.size() == 4 && shape[1] == kColours && shape[3] != kColours) {
    throw Error(ErrorClass::kBadData,
                str(where, " (", join(shape),
                    ") has its colours first, (number, 3, height, width); needed is (number, height, width, 3)"),
                transposition(name_in(where, "images"), "0, 2, 3, 1"));
  }
}

bool is_same_interval(double interval, double expected) {
  return std::abs(interval - expected) <= kIntervalTolerance * expected;
}

namespace {

// Sets interval and gaps; a unit of `times` is `scale` seconds.
void find_gaps(const std::vector<double>& times, double scale, TimeAxis& axis) {
  if (times.size() < 2) {
    return;
  }
  std::vector<double> steps(times.size());
  std::adjacent_difference(times.begin(), times.end(), steps.begin());
  steps.erase(steps.begin());
  std::vector<double> sorted = steps;
  const auto median = sorted.begin() + (std::ssize(sorted) - 1) / 2;  // the lower one: what is missing makes steps long
  std::nth_element(sorted.begin(), median, sorted.end());
  double sum = 0.0, count = 0.0;
  for (size_t i = 0; i < steps.size(); ++i) {
    if (is_same_interval(steps[i], *median)) {
      sum += steps[i];
      count += 1.0;
    } else {
      axis.gaps.push_back(static_cast<int64_t>(i) + 1);
    }
  }
  axis.interval = std::round(sum / count * scale);  // times of 32 bits are not exact, their mean step is
}

// CF units of dates: `unit` seconds each since `base`, in seconds since the begin of 1970 of `calendar`.
struct DateUnits {
  double base = 0;
  double unit = 0;
  std::string calendar;
  double seconds(double time) const { return base + time * unit; }
};

// Nothing for units or a calendar that are not known.
std::optional<DateUnits> date_units(const std::string& units, const std::string& calendar) {
  std::array<char, 32> unit{};
  Date date;
  int read = 0;
  if (std::sscanf(units.c_str(), "%31s since %d-%u-%u%n", unit.data(), &date.year, &date.month, &date.day, &read) !=
      4) {
    return std::nullopt;
  }
  int hour = 0;
  int minute = 0;
  double second = 0;
  std::string_view rest = std::string_view(units).substr(static_cast<size_t>(read));
  if (!rest.empty() && (rest.front() == ' ' || rest.front() == 'T')) {
    int taken = 0;
    if (std::sscanf(units.c_str() + read + 1, "%d:%d%n:%lf%n", &hour, &minute, &taken, &second, &taken) >= 2) {
      rest.remove_prefix(static_cast<size_t>(taken) + 1);
    }
  }
  const auto begin = rest.find_first_not_of(' ');
  rest.remove_prefix(begin == rest.npos ? rest.size() : begin);
  const bool is_utc = rest.empty() || rest == "Z" || rest == "UTC" || rest == "+00:00" || rest == "+0000" ||
                      rest == "0:00" || rest == "00:00";
  const auto scale = seconds_of(unit.data());
  const auto kind = calendar_kind(calendar);
  const auto days = kind ? days_of(date, *kind) : std::nullopt;
  if (!is_utc || !scale || !days || !std::isfinite(second)) {
    return std::nullopt;
  }
  const double base = static_cast<double>(*days) * kSecondsOfDay + hour * kSecondsOfHour + minute * 60.0 + second;
  return DateUnits{base, *scale, *kind};
}

}  // namespace

TimeAxis time_axis(const std::vector<double>& times, const std::string& units, const std::string& calendar) {
  if (units.empty()) {
    return {TimeAxis::Kind::kNumbers, times.front(), times.back()};
  }
  const auto dates = date_units(units, calendar);
  if (!dates || !std::isfinite(times.front()) || !std::isfinite(times.back())) {
    return {};
  }
  TimeAxis axis{TimeAxis::Kind::kDates, dates->seconds(times.front()), dates->seconds(times.back()), dates->calendar};
  find_gaps(times, dates->unit, axis);
  std::vector<int64_t> seconds;
  std::transform(times.begin(), times.end(), std::back_inserter(seconds),
                 [&](double time) { return std::llround(dates->seconds(time)); });
  axis.digest = XXH3_64bits(seconds.data(), seconds.size() * sizeof(int64_t));
  return axis;
}

std::vector<double> times_of_seconds(std::vector<double> seconds, const StoredTimes& like) {
  const auto dates = date_units(like.units, like.calendar);
  VH_ASSERT(dates, like.units);
  for (double& time : seconds) {
    time = (time - dates->base) / dates->unit;
  }
  return seconds;
}

std::vector<double> seconds_of_times(const StoredTimes& times, const TimeAxis& axis) {
  const auto dates = date_units(times.units, times.calendar);
  VH_ASSERT(dates && axis.kind == TimeAxis::Kind::kDates && axis.calendar == dates->calendar, times.units);
  std::vector<double> seconds;
  std::transform(times.values.begin(), times.values.end(), std::back_inserter(seconds),
                 [&](double time) { return dates->seconds(time); });
  return seconds;
}

DayTime day_time(double seconds, const std::string& calendar) {
  constexpr double kMostYears = 30000.0;  // std::chrono knows 32,767
  if (!(std::abs(seconds) < kMostYears * 360.0 * kSecondsOfDay)) {
    throw Error(ErrorClass::kBadData, str("the time ", seconds, " s since 1970 is in no year that is known"),
                str("allowed are ", kMostYears, " years before and after 1970: correct the times of the data"));
  }
  const double days = std::floor(seconds / kSecondsOfDay);
  DayTime time;
  time.seconds = seconds - days * kSecondsOfDay;
  const auto day = static_cast<int64_t>(days);
  if (calendar == "standard") {
    using std::chrono::year, std::chrono::January, std::chrono::sys_days;
    const sys_days date{std::chrono::days(day)};
    const year of = std::chrono::year_month_day(date).year();
    time.year = static_cast<int>(of);
    time.day_of_year = (date - sys_days(of / January / 1)).count() + 1;
    time.days_in_year = of.is_leap() ? 366 : 365;
    return time;
  }
  time.days_in_year = calendar == "noleap" ? 365 : calendar == "all_leap" ? 366 : 360;
  const int64_t in_cycle = (day % time.days_in_year + time.days_in_year) % time.days_in_year;
  time.year = 1970 + (day - in_cycle) / time.days_in_year;
  time.day_of_year = in_cycle + 1;
  return time;
}

DayTime day_time(double seconds, const TimeAxis& axis) {
  constexpr double kTenMinutes = 600.0;
  const double unit = std::fmod(axis.interval, kTenMinutes) == 0.0 ? kTenMinutes : 1.0;
  return day_time(std::round(seconds / unit) * unit, axis.calendar);
}

TimeAxis checked_time_axis(const StoredTimes& stored, const std::string& where) {
  const auto& [times, units, calendar, simulation] = stored;
  if (times.empty()) {
    return {};
  }
  const auto odd = std::find_if_not(times.begin(), times.end(), [](double time) { return std::isfinite(time); });
  if (odd != times.end() && !units.empty()) {
    throw Error(ErrorClass::kBadData, str(where, ": the time of row ", odd - times.begin(), " is ", *odd),
                "times are finite: repair the file");
  }
  TimeAxis axis = time_axis(times, units, calendar);
  axis.simulation = simulation;
  constexpr double kMostSeconds = 1e12;  // 31,700 years; NumPy's NaT is far beyond
  for (const auto& [row, seconds] : {std::pair<size_t, double>(0, axis.first), {times.size() - 1, axis.last}}) {
    if (axis.kind == TimeAxis::Kind::kDates && !(std::abs(seconds) < kMostSeconds)) {
      throw Error(ErrorClass::kBadData,
                  str(where, ": the time of row ", row, " is ", times[row], " ", units, ", no date"),
                  "times are those of years that are known: repair the file");
    }
  }
  const auto bad = std::adjacent_find(times.begin(), times.end(), [](double a, double b) { return !(a < b); });
  if (bad == times.end()) {
    return axis;
  }
  if (axis.kind == TimeAxis::Kind::kDates) {
    throw Error(ErrorClass::kBadData,
                str(where, ": its times do not ascend: row ", bad - times.begin(), " has ", *bad, ", the next one ",
                    *(bad + 1), " (", shown(units), ")"),
                "sort the rows of the file by time, each once");
  }
  return {};
}

namespace {

// The first and last second of "2015", "2015-02" or "2015-02-28", the last one excluded; nothing for no date.
std::optional<std::array<double, 2>> seconds_of_date(const std::string& text, const std::string& calendar) {
  Date first;
  int read_year = 0, read_month = 0, read_day = 0;
  const int parts = std::sscanf(text.c_str(), "%4d%n-%2u%n-%2u%n", &first.year, &read_year, &first.month, &read_month,
                                &first.day, &read_day);
  if (parts < 1 || read_year != 4 || std::max({read_year, read_month, read_day}) != static_cast<int>(text.size()) ||
      first.year < 0) {
    return std::nullopt;
  }
  Date behind = first;
  if (parts == 1 || (parts == 2 && first.month == 12)) {
    behind = {first.year + 1, 1, 1};
  } else if (parts == 2) {
    behind = {first.year, first.month + 1, 1};
  }
  const auto begin = days_of(first, calendar), end = days_of(behind, calendar);
  if (!begin || !end) {
    return std::nullopt;
  }
  const int64_t last = parts == 3 ? *begin + 1 : *end;
  return std::array{static_cast<double>(*begin) * kSecondsOfDay, static_cast<double>(last) * kSecondsOfDay};
}

}  // namespace

std::string AskedDates::text() const {
  return str(option, " ", shown(span));
}

Range rows_of_dates(const AskedDates& dates, DateRows rows, const std::vector<double>& times, const TimeAxis& axis,
                    const std::string& where) {
  const std::string& span = dates.span;
  if (axis.kind != TimeAxis::Kind::kDates) {
    throw Error(
        ErrorClass::kBadData, str(where, " has no dates, of which ", dates.text(), " takes some"),
        "a coordinate of time with CF units (`hours since 1900-01-01`) is needed; leave the option away for all rows");
  }
  const size_t slash = span.find('/');
  const auto first = seconds_of_date(span.substr(0, slash), axis.calendar);
  const auto last = slash == std::string::npos ? first : seconds_of_date(span.substr(slash + 1), axis.calendar);
  if (!first || !last || !((*first)[0] < (*last)[1])) {
    throw Error(ErrorClass::kUsage, str(dates.option, " is '", shown(span), "'"),
                str("give one or two of YYYY, YYYY-MM and YYYY-MM-DD, such as 2015 or 1979-02/2015, the earlier first",
                    axis.calendar == "standard" ? "" : str(" (calendar ", axis.calendar, ")")));
  }
  // As time_axis() has made seconds of them.
  const double scale = times.size() < 2 ? 0.0 : (axis.last - axis.first) / (times.back() - times.front());
  constexpr double kRounding = 0.5;  // seconds, of hours kept in days of 32 bits and less
  const auto row_from = [&](double second) {
    return std::partition_point(
               times.begin(), times.end(),
               [&](double time) { return axis.first + (time - times.front()) * scale < second - kRounding; }) -
           times.begin();
  };
  const auto reach = [&](const Lead& lead) {
    const double seconds =
        lead.hours > 0.0 ? lead.hours * kSecondsOfHour : static_cast<double>(lead.rows) * axis.interval;
    return rows == DateRows::kOfSpan ? 0.0 : seconds;
  };
  // Intervals differ, of months by days; behind the dates, the last start lies before their end.
  return {row_from((*first)[0] - reach(dates.before) * (1.0 + kIntervalTolerance)),
          row_from((*last)[1] + reach(dates.after))};
}

std::vector<int64_t> rows_at_dates(const std::vector<std::string>& dates, const StoredTimes& times,
                                   const TimeAxis& axis, const std::string& where) {
  constexpr double kRounding = 0.5;  // seconds
  const std::vector<double> seconds = dates.empty() ? std::vector<double>() : seconds_of_times(times, axis);
  std::vector<int64_t> rows;
  for (const std::string& date : dates) {
    const auto read = date_units("seconds since " + date, times.calendar);
    if (!read) {
      throw Error(ErrorClass::kBadData, str(where, " has '", shown(date), "', which is no date"),
                  "dates are such as 2020-01-01T06:00:00");
    }
    const auto row = std::lower_bound(seconds.begin(), seconds.end(), read->base - kRounding);
    if (row != seconds.end() && *row <= read->base + kRounding) {
      rows.push_back(row - seconds.begin());
    }
  }
  std::sort(rows.begin(), rows.end());
  rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
  return rows;
}

std::string lead_text(const Lead& lead) {
  return str(counted(lead.rows, "row"), lead.hours > 0.0 ? str(" (", lead.hours, " hours)") : "");
}

Lead asked_lead(const Lead& given) {
  return {given.hours > 0.0 ? 0 : given.rows, given.hours};
}

Lead resolved_lead(const Lead& lead, double interval) {
  if (lead.hours == 0.0 || (interval == 0.0 && lead.rows > 0)) {
    return {lead.rows, lead.rows * interval / kSecondsOfHour};
  }
  if (interval == 0.0) {
    throw Error(ErrorClass::kUsage,
                str("--dt-hours is ", lead.hours, ", and the data do not say which hours their rows are of"),
                "give --dt, the number of rows from input to target, or files with a dimension scale of time with CF "
                "units (`hours since 1900-01-01`)");
  }
  constexpr double kRounding = 0.01;
  const double rows = lead.hours * kSecondsOfHour / interval;
  if (std::round(rows) < 1.0 || std::abs(rows - std::round(rows)) > kRounding * rows) {
    throw Error(ErrorClass::kUsage, str("the lead of ", lead.hours, " hours is no multiple of the ",
                                        interval / kSecondsOfHour, " hours that the rows of the data lie apart"));
  }
  return {static_cast<int64_t>(std::round(rows)), lead.hours};
}

std::string time_text(const TimeAxis& axis, double time) {
  constexpr double kMostSeconds = 1e13;  // of a year that can be named
  if (axis.kind != TimeAxis::Kind::kDates) {
    return str(time);
  }
  if (axis.calendar != "standard" || !(std::fabs(time) < kMostSeconds)) {
    return str("day ", time / kSecondsOfDay, " of calendar ", axis.calendar);
  }
  const double days = std::floor(time / kSecondsOfDay);
  const std::chrono::year_month_day date{std::chrono::sys_days(std::chrono::days(static_cast<int64_t>(days)))};
  const auto seconds = static_cast<int>(std::floor(time - days * kSecondsOfDay));
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), "%04d-%02u-%02u %02d:%02d:%02d", static_cast<int>(date.year()),
                static_cast<unsigned>(date.month()), static_cast<unsigned>(date.day()), seconds / 3600,
                seconds / 60 % 60, seconds % 60);
  return text.data();
}

}  // namespace vit_hybrid::data
