// Statistics of communication in this process: operations and bytes by axis and kind, seconds blocked by axis and by
// phase.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "parallel/comm/operation.h"

namespace vit_hybrid::comm {

/// Operations of one kind and the bytes of their tensors (OperationNote::bytes).
struct OperationCount {
  int64_t operations = 0;
  int64_t bytes = 0;
};

/// What went over the communicators of one axis since the start.
struct AxisStatistics {
  std::string axis;
  int group_size = 1;
  std::array<OperationCount, kNumOperations> counts{};
  /// Host tensors: seconds inside Work::wait(). Device tensors: seconds the caller's stream stood
  /// still for the result, as far as the device has got.
  double blocked_seconds = 0;
  /// Host tensors: seconds in which an operation was in flight and nobody in Work::wait(), of this axis or another.
  double hidden_seconds = 0;
  /// Of host tensors: what this rank has sent to ranks of other nodes, by itself or for those of its node.
  int64_t bytes_between_nodes = 0;

  const OperationCount& count(Operation operation) const { return counts[static_cast<size_t>(operation)]; }
};

/// A copy of all counters, in the order in which the axes were first used. Sources are asked first.
std::vector<AxisStatistics> statistics();

/// Seconds blocked since the start, of all axes, in one phase of the run (RunPosition::phase).
struct PhaseBlocked {
  const char* phase = "";
  double seconds = 0.0;
  double without_core = 0.0;  ///< of them, by seconds_without_core()
};

/// Of every phase in which anybody was blocked. Sources are asked first.
std::vector<PhaseBlocked> blocked_by_phase();
/// Sums over the phases.
PhaseBlocked total_of(const std::vector<PhaseBlocked>& phases);

/// For back ends: adds an operation, what it sends, and time blocked in a phase, to the counters of an axis. Operations
/// that RecordedOperations collects are added by its replays.
void count_operation(const std::string& axis, int group_size, Operation operation, int64_t bytes);
void count_bytes_between_nodes(const std::string& axis, int64_t bytes);
void add_blocked_seconds(const std::string& axis, const PhaseBlocked& blocked);
/// For back ends of host tensors, at the begin (1) and the end (-1) of an operation.
void count_in_flight(const std::string& axis, int change);
/// The thread that waits for operations does so while this object lives: what is in flight then is not hidden.
class WaitingTime {
 public:
  WaitingTime();
  ~WaitingTime();
  WaitingTime(const WaitingTime&) = delete;
  WaitingTime& operator=(const WaitingTime&) = delete;
};

/// For back ends that learn of blocked time late, from a device: `settle`, which adds what has become known, is called
/// by statistics() and blocked_by_phase(), on their thread, as long as this object lives.
class StatisticsSource {
 public:
  explicit StatisticsSource(std::function<void()> settle);
  ~StatisticsSource();
  StatisticsSource(const StatisticsSource&) = delete;
  StatisticsSource& operator=(const StatisticsSource&) = delete;

 private:
  std::function<void()> settle_;
};

}  // namespace vit_hybrid::comm
