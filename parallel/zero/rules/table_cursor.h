// Tables that a GPU's threads walk: segments of what a rank owns, and ranges of which squares are summed; and
// TableCursor: finds the entry of a place, for a thread that goes forwards.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "src/base/instruction_sets.h"

namespace vit_hybrid::zero {

/// Entries as a plain array. Each has `begin`, its first place; they ascend from 0, and each reaches to the begin of
/// the next one, the last one to the end of what is walked.
template <class Entry>
struct Table {
  const Entry* entries;
  int64_t count;
};

/// Neighbouring elements of the optimizer's flat state that are neighbours in the flat buffers too and have one weight
/// decay. Its places are elements of the state.
struct Segment {
  int64_t begin;
  int64_t shift;  ///< element i of the state is element i + shift of the flat buffers
  double weight_decay;
};
using SegmentTable = Table<Segment>;

/// What begins and shifts of segments are multiples of. FlatLayout begins parameters and shards at multiples of 16
/// elements, so the state of each begins at one too. Vectors of 16 bytes of the state's type then lie in one segment,
/// and are aligned in all arrays.
inline constexpr int64_t kSegmentAlignment = 4;

/// Elements [first, end) of an array that are counted. Its places are the vectors of the array in which they lie, the
/// outer ones maybe in part.
struct CountedRange {
  int64_t begin;  ///< vectors of the ranges before it
  int64_t shift;  ///< vector i of the walk is vector i + shift of the array
  int64_t first;
  int64_t end;

  /// Where the next one begins, with vectors of `width` elements.
  VH_HOST_DEVICE int64_t next_begin(int64_t width) const { return (end + width - 1) / width - shift; }
};

/// The range [first, end), not empty, behind others with `begin` vectors of `width` elements.
VH_HOST_DEVICE inline CountedRange counted_range(int64_t begin, int64_t first, int64_t end, int64_t width) {
  return {begin, first / width - begin, first, end};
}

/// The table of `ranges` (of Range), without empty ones.
template <class Ranges>
std::vector<CountedRange> counted_ranges(const Ranges& ranges, int64_t width) {
  std::vector<CountedRange> counted;
  for (const auto& [first, end] : ranges) {
    if (first < end) {
      const int64_t begin = counted.empty() ? 0 : counted.back().next_begin(width);
      counted.push_back(counted_range(begin, first, end, width));
    }
  }
  return counted;
}

/// Finds the first entry by bisection and the next one by a look.
template <class Entry>
class TableCursor {
 public:
  /// A table without entries stands for `only`.
  VH_HOST_DEVICE explicit TableCursor(const Table<Entry>& table, const Entry& only = {})
      : table_(table), entry_(only), end_(table.count > 0 ? 0 : kNoEnd) {}

  /// Goes to the entry of `place`, which is not before the last one; true if it is another.
  VH_HOST_DEVICE bool move_to(int64_t place) {
    const bool moves = place >= end_;
    if (moves) {
      seek(place);
    }
    return moves;
  }
  VH_HOST_DEVICE const Entry& entry() const { return entry_; }

 private:
  static constexpr int64_t kNoEnd = std::numeric_limits<int64_t>::max();

  VH_HOST_DEVICE int64_t end_of(int64_t index) const {
    return index + 1 < table_.count ? table_.entries[index + 1].begin : kNoEnd;
  }

  VH_HOST_DEVICE void seek(int64_t place) {
    int64_t low = next_;
    int64_t high = place < end_of(low) ? low : table_.count - 1;  // the entry is in [low, high]
    while (low < high) {
      const int64_t middle = (low + high) / 2;
      if (place < end_of(middle)) {
        high = middle;
      } else {
        low = middle + 1;
      }
    }
    entry_ = table_.entries[low];
    end_ = end_of(low);
    next_ = low + 1;
  }

  Table<Entry> table_;
  Entry entry_;       // that was found last
  int64_t end_;       // of it
  int64_t next_ = 0;  // no entry before it holds the next place
};

}  // namespace vit_hybrid::zero
