// DayClimatology: the state that is to be expected at a day of the year and an hour of the day.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "data/datasets/weather_dataset.h"

namespace vit_hybrid::data {

/// A file or store with the layout of a year (of `data stats --climatology`), whose rows are looked up by the day and
/// hour of their dates.
class DayClimatology {
 public:
  /// Of what `fields` predicts: its channels by name, where they have names, in its normalised units. Collective over
  /// `group` (which outlives the object); errors are agreed: those of WeatherTimes, Error(kBadData) where it has no
  /// dates, a day and hour twice, or is of another grid, shape or unit.
  DayClimatology(const comm::MpiGroup& group, const std::string& path, const FieldQuery& query,
                 const WeatherTimes& fields);

  /// Error(kBadData) where it has no row for one of these times.
  void require(const std::vector<DayTime>& times) const;
  /// [C, H, W], normalised, float32; of a time that it has.
  at::Tensor read(const DayTime& time) const;

 private:
  using Key = std::pair<int64_t, int64_t>;  // day of the year, second of the day
  static Key key_of(const DayTime& time);

  std::string path_;
  WeatherTimes times_;
  std::map<Key, int64_t> rows_;
};

}  // namespace vit_hybrid::data
