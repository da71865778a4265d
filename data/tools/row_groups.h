// RowGroups: rows of a dataset cut into parts that share no chunk, so that none is read and inflated twice.
#pragma once

#include <algorithm>
#include <cstdint>

#include "data/hdf5/hdf5_layout.h"
#include "src/base/partition.h"

namespace vit_hybrid::data {

/// Rows that lie in one chunk together, where chunks are read whole; else, and where they would need more than 1
/// GiB, 1.
inline int64_t rows_read_together(const Hdf5Layout& layout) {
  constexpr int64_t kMostBytes = int64_t{1} << 30;
  const bool is_whole = !layout.chunk.empty() && layout.storage != Hdf5Layout::Storage::kChunked;
  const int64_t rows = is_whole ? layout.chunk.front() : 1;
  return rows * layout.row_bytes() <= kMostBytes ? rows : 1;
}

/// `count` rows in `parts` parts that begin at multiples of `unit` rows.
class RowGroups {
 public:
  RowGroups(int64_t count, int64_t unit, int64_t parts)
      : count_(count), unit_(unit), units_((count + unit - 1) / unit, parts) {}

  int64_t count() const { return count_; }
  int64_t unit() const { return unit_; }
  int64_t parts() const { return units_.parts(); }
  Range part(int64_t i) const {
    const Range part = units_.part(i);
    return {std::min(part.begin * unit_, count_), std::min(part.end * unit_, count_)};
  }
  /// No part has more rows.
  int64_t largest() const { return units_.largest() * unit_; }

 private:
  int64_t count_;
  int64_t unit_;
  Partition units_;
};

}  // namespace vit_hybrid::data
