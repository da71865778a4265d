// DayClimatology: the state that is to be expected at a day of the year and an hour of the day.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "data/datasets/weather_dataset.h"

namespace vit_hybrid::data {

class HourDayFields;

/// A file or store with the layout of a year (of `data stats --climatology`), whose rows are looked up by the day and
/// hour of their dates; or one of WeatherBench 2, whose variables have the dims `hour` and `dayofyear`. Latitudes may
/// be the other way round than the data's, and longitudes may begin elsewhere.
class DayClimatology {
 public:
  /// Of what `fields` predicts: its channels by name, where they have names, in its normalised units. What of
  /// FieldQuery::variables is not there is of the data. Collective over `group` (which outlives the object); errors are
  /// agreed: Error(kMissingInput) where `path` is not there, those of WeatherTimes and find_channels(), Error(kBadData)
  /// where it has no dates, a day and hour twice, or is of another grid, shape or unit.
  DayClimatology(const comm::MpiGroup& group, const std::string& path, const FieldQuery& query,
                 const WeatherTimes& fields);
  ~DayClimatology();

  /// Error(kBadData) where it has no row for one of these times.
  void require(const std::vector<DayTime>& times) const;
  /// Whether read() makes no MPI and no HDF5 call and may run on any thread, one at a time.
  bool background_reads() const;
  /// [C, H, W], normalised, float32; of a time that it has.
  at::Tensor read(const DayTime& time) const;

 private:
  using Key = std::pair<int64_t, int64_t>;  // day of the year, second of the day
  static Key key_of(const DayTime& time);
  void add(const DayTime& time, int64_t first, int64_t second);
  void add_rows(const comm::MpiGroup& group);
  void require_all_days() const;
  void require_fields(const std::vector<int64_t>& shape, const Grid& grid, const std::vector<std::string>& units,
                      const WeatherTimes& fields);

  std::string path_;
  std::unique_ptr<HourDayFields> by_hour_;           // or:
  std::optional<WeatherTimes> times_;                // with a row for each
  std::map<Key, std::pair<int64_t, int64_t>> rows_;  // numbers of hour and day, or of the row and 0
  bool is_turned_ = false;                           // its latitudes are the other way round
  int64_t first_column_ = 0;                         // of its own that is the data's first one
};

}  // namespace vit_hybrid::data
