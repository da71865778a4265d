// Segments of what a rank owns, and SegmentCursor: finds that of an element, for a thread that goes forwards.
#pragma once

#include <cstdint>
#include <limits>

#include "src/base/instruction_sets.h"

namespace vit_hybrid::zero {

/// Neighbouring elements of the optimizer's flat state that are neighbours in the flat buffers too and have one weight
/// decay. It reaches to the begin of the next one; the last one to the end of the state.
struct Segment {
  int64_t begin;  ///< in the state
  int64_t shift;  ///< element i of the state is element i + shift of the flat buffers
  double weight_decay;
};

/// What begins and shifts are multiples of. FlatLayout begins parameters and shards at multiples of 16 elements, so the
/// state of each begins at one too. Vectors of 16 bytes of the state's type then lie in one segment, and are aligned in
/// all arrays.
inline constexpr int64_t kSegmentAlignment = 4;

/// Segments as a plain array, in ascending order; the first begins at 0.
struct SegmentTable {
  const Segment* segments;
  int64_t count;
};

/// Finds the first segment by bisection and the next one by a look.
class SegmentCursor {
 public:
  VH_HOST_DEVICE explicit SegmentCursor(const SegmentTable& table) : table_(table) {}

  /// Goes to the segment of `element`, which is not before the last one; true if it is another.
  VH_HOST_DEVICE bool move_to(int64_t element) {
    const bool moves = element >= end_;
    if (moves) {
      seek(element);
    }
    return moves;
  }
  VH_HOST_DEVICE int64_t shift() const { return shift_; }
  VH_HOST_DEVICE double weight_decay() const { return weight_decay_; }

 private:
  VH_HOST_DEVICE int64_t end_of(int64_t segment) const {
    return segment + 1 < table_.count ? table_.segments[segment + 1].begin : std::numeric_limits<int64_t>::max();
  }

  VH_HOST_DEVICE void seek(int64_t element) {
    int64_t low = next_;
    int64_t high = element < end_of(low) ? low : table_.count - 1;  // the segment is in [low, high]
    while (low < high) {
      const int64_t middle = (low + high) / 2;
      if (element < end_of(middle)) {
        high = middle;
      } else {
        low = middle + 1;
      }
    }
    shift_ = table_.segments[low].shift;
    weight_decay_ = table_.segments[low].weight_decay;
    end_ = end_of(low);
    next_ = low + 1;
  }

  SegmentTable table_;
  int64_t next_ = 0;  // no segment before it holds the next element
  int64_t end_ = 0;   // of the segment that was found last
  int64_t shift_ = 0;
  double weight_decay_ = 0.0;
};

}  // namespace vit_hybrid::zero
