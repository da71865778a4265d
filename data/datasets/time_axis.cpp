// Units of time and calendars.
#include "data/datasets/time_axis.h"

#include <array>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <map>
#include <optional>
#include <string_view>

#include "src/base/text.h"

namespace vit_hybrid::data {

namespace {

constexpr double kDay = 86400.0;

std::optional<double> seconds_of(const std::string& unit) {
  static const std::map<std::string, double> kUnits = {
      {"days", kDay},  {"day", kDay},          {"d", kDay},  {"hours", 3600},
      {"hour", 3600},  {"hrs", 3600},          {"hr", 3600}, {"h", 3600},
      {"minutes", 60}, {"minute", 60},         {"mins", 60}, {"min", 60},
      {"seconds", 1},  {"second", 1},          {"secs", 1},  {"sec", 1},
      {"s", 1},        {"milliseconds", 1e-3}, {"ms", 1e-3}, {"microseconds", 1e-6},
      {"us", 1e-6},    {"nanoseconds", 1e-9},  {"ns", 1e-9}};
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
  if (date.month < 1 || date.month > 12 || date.day < 1 || date.day > 31) {
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

TimeAxis time_axis(double first, double last, const std::string& units, const std::string& calendar) {
  if (units.empty()) {
    return {TimeAxis::Kind::kNumbers, first, last};
  }
  std::array<char, 32> unit{};
  Date date;
  int read = 0;
  if (std::sscanf(units.c_str(), "%31s since %d-%u-%u%n", unit.data(), &date.year, &date.month, &date.day, &read) !=
      4) {
    return {};
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
  if (!is_utc || !scale || !days) {
    return {};
  }
  const double base = static_cast<double>(*days) * kDay + hour * 3600.0 + minute * 60.0 + second;
  return {TimeAxis::Kind::kDates, base + first * *scale, base + last * *scale, *kind};
}

std::string time_text(const TimeAxis& axis, double time) {
  constexpr double kMostSeconds = 1e13;  // of a year that can be named
  if (axis.kind != TimeAxis::Kind::kDates) {
    return str(time);
  }
  if (axis.calendar != "standard" || !(std::fabs(time) < kMostSeconds)) {
    return str("day ", time / kDay, " of calendar ", axis.calendar);
  }
  const double days = std::floor(time / kDay);
  const std::chrono::year_month_day date{std::chrono::sys_days(std::chrono::days(static_cast<int64_t>(days)))};
  const auto seconds = static_cast<int>(std::floor(time - days * kDay));
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), "%04d-%02u-%02u %02d:%02d:%02d", static_cast<int>(date.year()),
                static_cast<unsigned>(date.month()), static_cast<unsigned>(date.day()), seconds / 3600,
                seconds / 60 % 60, seconds % 60);
  return text.data();
}

}  // namespace vit_hybrid::data
