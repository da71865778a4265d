// ClockAlignment: the clocks of the ranks against each other, by messages there and back (Cristian's algorithm), so
// that times of several nodes, or time namespaces, can be shown together.
#pragma once

#include <cstdint>

#include "parallel/comm/mpi/mpi_group.h"

namespace vit_hybrid::comm {

/// How far a rank's clock (trace::now()) is ahead of rank 0's, at one moment. All in nanoseconds.
struct ClockOffset {
  int64_t at = 0;      ///< that moment, by the rank's own clock
  int64_t offset = 0;  ///< the rank's clock less rank 0's
  int64_t error = 0;   ///< by which `offset` may be wrong, either way
};

/// What is known of a clock between these bounds: that it is rank 0's own where it may be, as on one node without time
/// namespaces, however late the answers came; else the middle. Pure.
ClockOffset offset_between(int64_t least, int64_t most, int64_t at);

/// Rank 0 sends each other rank its turn of messages, to which that one answers with its time. An answer's time lies
/// between those of its question and its arrival, by rank 0's clock: each pair gives a lower and an upper bound of the
/// offset, whatever the two ways take. The offset is offset_between() the best of them. Takes a fraction of a
/// millisecond a rank, and up to 20 ms where ranks outnumber cores. Collective over `group`.
ClockOffset measure_clock_offset(const MpiGroup& group);

/// Times of this rank's clock as rank 0's has them, between two measurements: clocks that drift apart do so evenly.
class ClockAlignment {
 public:
  ClockAlignment(const ClockOffset& first, const ClockOffset& last) : first_(first), last_(last) {}

  /// Nanoseconds of rank 0's clock. Times that follow each other stay in order.
  int64_t on_rank_0(int64_t own) const;
  /// Nanoseconds by which it may be wrong where the drift is even.
  int64_t error() const;
  /// Nanoseconds of drift a second.
  double drift() const;

 private:
  ClockOffset first_;
  ClockOffset last_;
};

}  // namespace vit_hybrid::comm
