// Coordinates of gridded fields: latitudes and longitudes, times, and the order in which files hold them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "src/base/partition.h"

namespace vit_hybrid::data {

/// The points of a latitude-longitude grid in degrees, as far as they are known.
struct Grid {
  std::vector<double> latitudes;   ///< of the rows, growing or falling; empty: not known
  std::vector<double> longitudes;  ///< of the columns, growing or falling, at most 360 degrees; empty: not known
  bool operator==(const Grid&) const = default;
};

/// w_i = H cos(phi_i) / sum_k cos(phi_k): the weight of row i at its latitude phi_i, the mean of all is 1. Where the
/// latitudes are not known, phi_i = 90 - 180 i/(H-1) degrees, i = 0 .. H-1. Rows at the poles alone count alike.
std::vector<double> latitude_weights(const Grid& grid, int64_t height);

/// The share of each row in the area of the sphere, of mean 1: sin of its upper less that of its lower bound, which lie
/// half way to its neighbours, or as far on the other side of the first and the last row, but at the poles at most (S.
/// Rasp et al., WeatherBench 2, JAMES 2024, section 3). Latitudes that are not known are those of latitude_weights().
std::vector<double> cell_area_weights(const Grid& grid, int64_t height);

/// "721 latitudes from 90 to -90, 1440 longitudes from 0 to 359.75"; "no latitudes, no longitudes".
std::string grid_text(const Grid& grid);

/// Whether two lists of points are the same to 1e-4 degrees (of which float32 holds every longitude), or one of them is
/// not known.
bool same_points(const std::vector<double>& a, const std::vector<double>& b);
/// That of latitudes and longitudes.
bool same_grid(const Grid& a, const Grid& b);

/// `first`, and what it does not know from `second`.
Grid joined_grid(const Grid& first, const Grid& second);

/// Longitudes that go on beside each other: 360 is added or taken away behind a jump from 359 to 0, from 180 to -179.
void unwrap_longitudes(std::vector<double>& longitudes);

/// Error(kBadData) where a point is not finite, a latitude is not in [-90, 90] to 1e-4 degrees, points neither grow nor
/// fall, or longitudes go round more than once; `where` names the file.
void check_grid(const Grid& grid, const std::string& where);

/// Time, channel, latitude, longitude.
constexpr size_t kFieldDims = 4;

/// What a dim of an array counts.
enum class DimKind { kUnknown, kTime, kChannel, kLevel, kLatitude, kLongitude, kSingle, kOther };

/// By the dim's name ("lat", "pressure_level", "valid_time") or the CF units of its coordinates ("degrees_north",
/// "hPa", "hours since 1900-01-01"), where either is known; else kOther, and kUnknown where it has no name. Pure.
DimKind dim_kind(const std::string& name, const std::string& units);

/// What a file tells of the dims of fields beside their extents.
struct FieldOrder {
  std::vector<int64_t> shape;                  ///< with that of time
  std::array<DimKind, kFieldDims> kinds = {};  ///< by the names or units of dimension scales and labels
  int64_t num_channel_names = 0;               ///< 0: none are given
  int64_t num_latitudes = 0;                   ///< of a dataset of this name; 0: there is none
  int64_t num_longitudes = 0;                  ///< likewise
};

/// Error(kBadData), with the way to transpose them, where fields have their channels last: where names or units say so,
/// else where there are as many names of channels, or latitudes and longitudes, as the dims of such fields have, else
/// where the last dim is at most a quarter of each of the two before it and nothing says that they lie right. `where`
/// names file and dataset. Pure.
void require_channels_first(const FieldOrder& order, const std::string& where);

/// The same where images, `shape` with that of their number, have their colours first. Pure.
void require_colours_last(const std::vector<int64_t>& shape, const std::string& where);

inline constexpr double kSecondsOfHour = 3600.0;

struct TimeAxis {
  enum class Kind {
    kNone,
    kNumbers,  ///< without units: they may count anew in each file
    kDates,    ///< seconds since the begin of 1970
  };
  Kind kind = Kind::kNone;
  double first = 0;
  double last = 0;
  std::string calendar = {};       ///< of kDates: "standard", "noleap", "all_leap", "360_day"
  double interval = 0;             ///< of kDates: whole seconds between rows, the mean without gaps; 0 for a single row
  std::vector<int64_t> gaps = {};  ///< rows that do not come one interval after the row before (months count as one)
  std::string simulation = {};     ///< the attribute kSimulation
  uint64_t digest = 0;             ///< of kDates: of all times to a second
  bool operator==(const TimeAxis&) const = default;
};

/// Whether two intervals are the same but for rounding (hours in days of 32 bits) and the lengths of months; where a
/// row is missing one is twice the other.
bool is_same_interval(double interval, double expected);

/// The axis of the ascending times of all rows in `units`, "hours since 1900-01-01 00:00:00", of a CF calendar (empty:
/// the usual one). Without units numbers; kNone for units or a calendar that are not known.
TimeAxis time_axis(const std::vector<double>& times, const std::string& units, const std::string& calendar);

/// Attribute of a coordinate of time: a text that tells which simulation the rows are of, where one does not go on in
/// the next file though the dates do.
inline constexpr const char* kSimulation = "simulation";

/// The values of a coordinate, and what its attributes tell of them; above all of the times of the rows of a file.
struct StoredTimes {
  std::vector<double> values;  ///< empty: it has none
  std::string units;
  std::string calendar;
  std::string simulation = {};  ///< kSimulation
};

/// The axis of times that may be anything: kNone where there are none, and without units where they do not ascend.
/// Error(kBadData), naming `where`, if dates do not: rows that follow each other would be no pairs.
TimeAxis checked_time_axis(const StoredTimes& times, const std::string& where);

/// The seconds since the begin of 1970 of each of the times, whose time_axis() `axis` is, of dates: those of which the
/// axis has the first and the last.
std::vector<double> seconds_of_times(const StoredTimes& times, const TimeAxis& axis);

/// Seconds since the begin of 1970 in the units and the calendar, of dates, that `like` has.
std::vector<double> times_of_seconds(std::vector<double> seconds, const StoredTimes& like);

/// A date as climatologies count it.
struct DayTime {
  int64_t year = 0;
  int64_t day_of_year = 1;   ///< from 1
  int64_t days_in_year = 0;  ///< of this year
  double seconds = 0;        ///< of the day, from 0
};

/// That of `seconds` since the begin of 1970 of a calendar (TimeAxis::calendar, of dates). Error(kBadData) beyond
/// 30,000 years. Pure.
DayTime day_time(double seconds, const std::string& calendar);
/// The same of a row at `seconds` of an axis of dates, to a whole second, and where the interval is a multiple of ten
/// minutes to one of these: times that are kept as days of 32 bits are some minutes off.
DayTime day_time(double seconds, const TimeAxis& axis);

/// How far the target of a pair lies behind its input.
struct Lead {
  int64_t rows = 1;    ///< 0: not known, the hours are
  double hours = 0.0;  ///< 0: not known, the rows are
};

/// Dates that were asked for.
struct AskedDates {
  std::string span = {};           ///< "2015", "2015-02/2016", "1990-01-01/1990-06-30", both ends included; empty: all
  Lead before = {.rows = 0};       ///< how far rows before them may be read, too: as states before the first start
  Lead after = {.rows = 0};        ///< and rows behind them: as truths
  std::string option = "--dates";  ///< that asked for them, for messages
  /// "--dates 2015".
  std::string text() const;
};

enum class DateRows { kOfSpan, kWithReach };

/// Of the ascending `times` of all rows as the file has them, `axis` their time_axis(), the rows whose dates lie in the
/// span, kWithReach: and those beyond it that may be read, or some more. Error(kUsage) for a text that is no span;
/// Error(kBadData), naming `where`, for times that are no dates.
Range rows_of_dates(const AskedDates& dates, DateRows rows, const std::vector<double>& times, const TimeAxis& axis,
                    const std::string& where);

/// The rows that have one of the dates in ISO 8601 ("2020-01-01T06:00:00"), ascending, of times whose time_axis(), of
/// dates, `axis` is; a date that none has is left out. Error(kBadData), naming `where`, for a text that is no date.
std::vector<int64_t> rows_at_dates(const std::vector<std::string>& dates, const StoredTimes& times,
                                   const TimeAxis& axis, const std::string& where);

/// "4 rows (24 hours)", "1 row".
std::string lead_text(const Lead& lead);

/// What --dt (rows) and --dt-hours ask for: the hours where they are given, and then nothing else.
Lead asked_lead(const Lead& given);

/// Both numbers of `lead` for rows that lie `interval` seconds apart (0: not known): its hours count where both are
/// known, else its rows. Error(kUsage) where neither can be, or where the hours are no whole number of intervals.
Lead resolved_lead(const Lead& lead, double interval);

/// "2015-02-01 06:00:00"; of a calendar that is not the usual one the days since the begin of its 1970.
std::string time_text(const TimeAxis& axis, double time);

}  // namespace vit_hybrid::data
