// StepTrace: the recording that --trace asks for, from its first step to its file (Chrome's trace format).
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "parallel/comm/mpi/mpi_group.h"
#include "parallel/mesh/device_mesh.h"
#include "src/base/trace.h"
#include "src/report/step_window.h"

namespace vit_hybrid::train {

/// How far a rank's clock (trace::now()) is ahead of rank 0's, at one moment. All in nanoseconds.
struct ClockOffset {
  int64_t at = 0;      ///< that moment, by the rank's own clock
  int64_t offset = 0;  ///< the rank's clock less rank 0's
  int64_t error = 0;   ///< by which `offset` may be wrong, either way
};

/// What is known of a clock between these bounds: that it is rank 0's own where it may be, and for sure where the
/// system says that they are one, however late the answers came; else the middle. Pure.
ClockOffset offset_between(int64_t least, int64_t most, int64_t at, bool is_one_clock = false);

/// Rank 0 sends each other rank in its turn messages, to which that one answers with its time. An answer's time lies
/// between those of its question and its arrival, by rank 0's clock, whatever the two ways take. The offset is
/// offset_between() these of the shortest round, at its answer, so that drift does not spoil it (Cristian,
/// Probabilistic clock synchronization, 1989). Takes a fraction of a millisecond a rank where a round takes 4 us or
/// less; on a slower network or a busy machine 20,000 times the shortest, at most 2 s, and 8 s for all ranks, or
/// 20 ms where the system says that two clocks are one. Collective over `group`.
ClockOffset measure_clock_offset(const comm::MpiGroup& group);

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

/// What a rank has recorded, and where it stands.
struct RankTrace {
  int rank = 0;
  std::string host;
  mesh::ParallelDims dims;
  std::vector<trace::Event> events;       ///< in the order in which they ended
  std::function<int64_t(int64_t)> shown;  ///< from nanoseconds of this rank's clock to those of the file; never falls
};

/// The rank's elements of "traceEvents": its names, its slices by rows, and the ends of its arrows. A line each, with a
/// comma and a line feed behind it. Rows are that of the main thread ("compute"), one an axis of communication, those
/// of data waits, of reading threads and of checkpoints, and on a GPU the first two again for its streams; where slices
/// of a row would cross each other (operations that are in flight at once) it has further lines. Arrows go from the
/// begin of the exchange that sends a message to the end of the one that receives it. Pure.
std::string trace_text(const RankTrace& trace);

/// Has all ranks record the steps of --trace (docs/profiling.md), and writes what they recorded as one file. The clocks
/// of the ranks are measured against rank 0's before the first and after the last of them.
class StepTrace : public StepWindow {
 public:
  /// `path`: of the file. `mesh` and `world`, the ranks of `mesh`, outlive it.
  StepTrace(const options::StepRange& steps, const mesh::DeviceMesh& mesh, const comm::MpiGroup& world,
            std::string path);

 private:
  void begin() override;
  /// A file that cannot be written is a warning.
  void end(int64_t last) override;

  const mesh::DeviceMesh& mesh_;
  const comm::MpiGroup& world_;
  std::string path_;
  ClockOffset first_offset_;
  int64_t zero_ = 0;  // of the file, by rank 0's clock
};

}  // namespace vit_hybrid::train
