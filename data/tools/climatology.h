// The climatology of a weather data set by day of the year and hour of the day, and its file.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "data/hdf5/hdf5_writer.h"
#include "data/reading/row_source.h"
#include "data/tools/row_statistics.h"

namespace vit_hybrid::data {

struct ClimatologyOptions {
  int64_t window_days = 61;  ///< odd, 1 to kMostWindowDays
  /// kRefuse: all values are finite, as row_statistics() has seen to it. kCount: others do not count.
  MissingValues missing = MissingValues::kRefuse;
  /// That a rank has at once; a row of longitudes at an hour has its sums even in less. Beside them are at most 128 MiB
  /// of rows and what chunks need.
  int64_t bytes_of_sums = int64_t{512} << 20;
};
inline constexpr int64_t kMostWindowDays = 365;

/// Means by day of the year, 1 to 366, and hour of the day, at every hour of which there is a row, as WeatherBench 2
/// defines them (S. Rasp et al., "WeatherBench 2: a benchmark for the next generation of data-driven global weather
/// models", JAMES 16, 2024, section on the climatology): over all years and a window of N days around the day, whose
/// weights fall linearly from 1 at its centre to 0 at N/2 (rounded down) days from it. Day 366 is followed by day 1; in
/// a year without day 366 the rows of day 365 stand for it, too. Days are those of the data's calendar.
class Climatology {
 public:
  /// Looks at the times of the rows of `source` (chosen_rows()), all of one shape; nothing is read. Collective over
  /// `group`, that of `source`; both outlive it. Errors are agreed: Error(kBadData) for data without dates, of calendar
  /// "360_day", or where no row lies within the window of some day and hour.
  Climatology(const comm::MpiGroup& group, const RowSource& source, const ClimatologyOptions& options);

  /// Bytes of the values of its file.
  int64_t bytes() const;
  /// "366 days x 4 hours, from 4382 rows of 3 years in a window of 61 days".
  std::string text() const;

  /// Writes the means as a weather file of the leap year 2000, `fields` (366 days x hours, channel, latitude,
  /// longitude) float32 with its coordinates, the channels called `names`; it is complete, and has its name with the
  /// file's finish(). The bytes do not depend on the number of ranks. Collective over the group; errors are agreed:
  /// Error(kBadData) where an element is missing at all times within a window, Error(kCannotCreate), Error(kIo).
  std::unique_ptr<Hdf5Writer> write(const std::string& path, const std::vector<std::string>& names) const;

 private:
  // A row, and the mean that it is of.
  struct DatedRow {
    RowSource::Place place;
    int64_t hour;  // number among hours_
    int64_t day;   // of the year, from 0
    bool is_last;  // of a year that has no day 366: it stands for that, too
  };
  // What a rank sums at once.
  struct Box {
    Range hours;  // numbers
    Range channels;
    Range latitudes;
  };
  struct Sums;

  void set_rows(const std::vector<double>& seconds);
  void check_windows() const;
  std::vector<Box> cut() const;
  std::vector<Range> channels_read_together() const;
  void sum(const Box& box, Sums& sums) const;
  void write_means(Sums& sums, const Box& box, Hdf5Writer& file) const;

  const comm::MpiGroup& group_;
  const RowSource& source_;
  const ClimatologyOptions options_;
  std::vector<double> hours_;  // of the day, in seconds, growing
  std::vector<DatedRow> rows_;
  int64_t num_years_ = 0;
};

}  // namespace vit_hybrid::data
