// DayClimatology: the state that is to be expected at a day of the year and an hour of the day; HourDayReader: rows of
// an array whose dims are the hour and the day, out of chunks that hold several of them.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "data/datasets/weather_dataset.h"
#include "data/reading/row_reader.h"
#include "src/base/partition.h"

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

/// Row h * days + d is what an array has of its hour h and its day d, one of which its first dim counts. ArrayLayout
/// knows the hours as DimKind::kTime and the days as kOther. What is read of a chunk for one row is kept for others, as
/// far as memory allows. For one thread at a time.
class HourDayReader : public RowReader {
 public:
  /// `reader` reads rows of `array`, its file 0. At most `most_days` days of all hours are kept; nothing where these
  /// are less than two.
  HourDayReader(const ArrayLayout& array, std::unique_ptr<RowReader> reader, int64_t most_days);

  /// All calls ask for the same boxes, whose dims of hours or days have one index.
  void read(std::span<const RowRead> rows, std::span<const RowBox> boxes, const Arrived& arrived) override;

 private:
  // Indices along a dim, in blocks that lie in one chunk each.
  struct Blocks {
    size_t dim;
    int64_t count;
    int64_t chunk;
    int64_t size;
    Range around(int64_t index) const;
  };
  Blocks blocks_along(const ArrayLayout& array, DimKind kind) const;
  RowBox in_block(RowBox box, const Range& inner) const;
  at::Tensor read_block(const Range& outer, const Range& inner, std::span<const RowBox> boxes) const;

  at::ScalarType type_;
  std::unique_ptr<RowReader> reader_;
  bool is_hour_first_;
  Blocks outer_, inner_;  // of the first dim, and of the other one
  LruCache<at::Tensor> kept_;
};

}  // namespace vit_hybrid::data
