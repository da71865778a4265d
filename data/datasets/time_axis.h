// TimeAxis: from when to when a file's rows are, by the units of the climate and forecast (CF) conventions.
#pragma once

#include <string>

namespace vit_hybrid::data {

struct TimeAxis {
  enum class Kind {
    kNone,
    kNumbers,  ///< without units: they may count anew in each file
    kDates,    ///< seconds since the begin of 1970
  };
  Kind kind = Kind::kNone;
  double first = 0;
  double last = 0;
  std::string calendar = {};  ///< of kDates: "standard", "noleap", "all_leap", "360_day"
  bool operator==(const TimeAxis&) const = default;
};

/// The axis of times from `first` to `last` in `units`, "hours since 1900-01-01 00:00:00", of a CF calendar (empty: the
/// usual one). Without units numbers; kNone for units or a calendar that are not known.
TimeAxis time_axis(double first, double last, const std::string& units, const std::string& calendar);

/// "2015-02-01 06:00:00"; of a calendar that is not the usual one the days since the begin of its 1970.
std::string time_text(const TimeAxis& axis, double time);

}  // namespace vit_hybrid::data
