// SegmentCursor: the value of an element in a table of segments, for a thread that goes forwards.
#pragma once

#include <cstdint>
#include <limits>

#include "src/base/host_device.h"

namespace vit_hybrid::zero {

/// Segments as plain arrays; null `bounds`: one segment of any length, with `value`.
struct SegmentTable {
  double value;
  const int64_t* bounds;  ///< [count + 1], ascending, from 0 to the number of elements
  const double* values;   ///< [count]
  int64_t count;
};

/// Finds the first segment by bisection and the next one by a look.
class SegmentCursor {
 public:
  VH_HOST_DEVICE explicit SegmentCursor(const SegmentTable& table) : table_(table), value_(table.value) {}

  /// Goes to the segment of `element`, which is not before the last one; true if it is another.
  VH_HOST_DEVICE bool move_to(int64_t element) {
    const bool moves = element >= end_;
    if (moves) {
      seek(element);
    }
    return moves;
  }
  VH_HOST_DEVICE double value() const { return value_; }

 private:
  VH_HOST_DEVICE void seek(int64_t element) {
    if (table_.bounds == nullptr) {
      end_ = std::numeric_limits<int64_t>::max();
      return;
    }
    int64_t low = next_;
    int64_t high = table_.count - 1;  // the segment is in [low, high]
    if (element < table_.bounds[low + 1]) {
      high = low;
    }
    while (low < high) {
      const int64_t middle = (low + high) / 2;
      if (element < table_.bounds[middle + 1]) {
        high = middle;
      } else {
        low = middle + 1;
      }
    }
    value_ = table_.values[low];
    end_ = table_.bounds[low + 1];
    next_ = low + 1;
  }

  SegmentTable table_;
  int64_t next_ = 0;  // no segment before it holds the next element
  int64_t end_ = 0;   // of the segment that was found last
  double value_;
};

}  // namespace vit_hybrid::zero
