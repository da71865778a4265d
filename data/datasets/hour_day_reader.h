// HourDayReader: rows of an array whose dims are the hour of the day and the day of the year, out of chunks that hold
// several of them.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <span>

#include "data/reading/row_reader.h"
#include "src/base/partition.h"

namespace vit_hybrid::data {

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
