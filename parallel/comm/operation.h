// Operations: their kinds, where in the run one was started, and the slot in which a process shows the one that it
// waits for.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "parallel/comm/failure.h"
#include "src/base/trace.h"

namespace vit_hybrid::comm {

enum class Operation { kAllReduce, kReduceScatter, kAllGather, kBroadcast, kExchange, kBarrier };
inline constexpr int kNumOperations = 6;

/// The axis of what processes tell each other beside tensors.
inline constexpr const char* kControlAxis = "control";

/// Its name as in the Communicator: "all_reduce".
std::string_view operation_name(Operation operation);

/// Where the run is: step -1 means before the first one; `phase` is a string literal, "" for none.
struct RunPosition {
  int64_t step = -1;
  const char* phase = "";

  /// "step 12, backward", or "" before the first step and outside of phases.
  std::string text() const;
};

/// The position of this process; noted with every operation and error. Safe from any thread.
RunPosition run_position();
void set_step(int64_t step);

/// The main thread has come further: it works where others may wait for it for longer than --timeout. Put it into every
/// loop whose whole may take that long and that asks nobody else (reading, writing, generating, timing). Costs a
/// nanosecond. On other threads it counts only where the main thread waits for them (note_work_of_helpers).
void note_work();

/// While the main thread waits for threads of its own: it comes further if one of them has called note_work() since the
/// last call of this.
void note_work_of_helpers();

/// The run is in `phase` (a string literal, e.g. "backward") while this object lives, and a trace has a slice of it;
/// phases nest.
class PhaseScope {
 public:
  /// Of which micro-batch and stage it is, where it is of one.
  explicit PhaseScope(const char* phase, int micro_batch = -1, int stage = -1);
  ~PhaseScope();
  PhaseScope(const PhaseScope&) = delete;
  PhaseScope& operator=(const PhaseScope&) = delete;

 private:
  const char* previous_;
  trace::Scope slice_;
};

/// What is known of one operation: enough to name it in a message.
struct OperationNote {
  std::string axis;       ///< of the communicator, or of the group; "": of all that were launched
  std::string operation;  ///< operation_name(), or what else blocks: "agreement on the arguments"
  int64_t bytes = 0;      ///< size of the larger tensor; of all sent ones for exchange
  uint64_t sequence = 0;  ///< counts the operations of its communicator, from 1; 0 for none
  RunPosition position;
  uint64_t group = 0;        ///< WatchedGroup::id(), 0 where not known
  uint64_t turn = 0;         ///< number among the collectives of the group, from 1; 0: not all of its ranks take part
  int64_t traced_since = 0;  ///< when it was begun, by trace::now(); 0: it is not traced

  /// "all_reduce number 17 on axis 'tensor', 4096 bytes, in step 12, backward".
  std::string text() const;
};

/// The slice of a trace that tells of it; without times.
trace::Event slice_of(const OperationNote& note, trace::Kind kind);

class WatchedGroup;

using SlotClock = std::chrono::steady_clock;

/// Up to now.
double seconds_since(SlotClock::time_point start);

/// The calling thread is blocked in `note` while this object lives. `note` must outlive it. Put it
/// around every call that can wait for another process. On the main thread it shows on the node's board, and a trace
/// has a slice of it.
class BlockedScope {
 public:
  explicit BlockedScope(const OperationNote& note);
  ~BlockedScope();
  BlockedScope(const BlockedScope&) = delete;
  BlockedScope& operator=(const BlockedScope&) = delete;

  double seconds() const;
  /// The main thread looks whether it may go on: it runs. Without this it is taken to be inside of a library.
  void look();
  /// Whom it waits for, as far as that is known.
  void awaits(const std::vector<int>& world_ranks);

 private:
  void show() const;

  const OperationNote* note_;
  const BlockedScope* outer_ = nullptr;
  uint64_t id_ = 0;  // in the table, of a thread that is not the main one
  bool looks_ = false;
  SlotClock::time_point since_;
  std::optional<trace::Scope> slice_;  // while somebody records or listens
};

/// The caller is inside of a library, in a collective of all ranks of `group`, while this object lives: there too
/// whoever does not come is to be named. Put it around every collective of MPI and HDF5 that blocks, freeing and
/// closing included.
class CollectiveScope {
 public:
  /// Begins `operation` of the named axis, one of `bytes`. All ranks of the group begin the same ones in the same
  /// order.
  CollectiveScope(WatchedGroup& group, const char* axis, const char* operation, int64_t bytes = 0);

  BlockedScope& blocked() { return blocked_; }

 private:
  OperationNote note_;
  BlockedScope blocked_;
};

/// State of an operation that runs on a device, without a host thread that waits for it.
struct DeviceStatus {
  enum class Kind { kRunning, kComplete, kFailed };
  Kind kind = Kind::kRunning;
  std::string error;          ///< for kFailed
  Cause cause = Cause::kOwn;  ///< for kFailed
};

/// A device operation is in flight while this object lives; `probe` looks at it without blocking and is called from the
/// watchdog's thread, which may still be in it when this object is gone: it owns what it looks at.
class DeviceOperation {
 public:
  DeviceOperation(OperationNote note, std::function<DeviceStatus()> probe);
  ~DeviceOperation();
  DeviceOperation(const DeviceOperation&) = delete;
  DeviceOperation& operator=(const DeviceOperation&) = delete;

 private:
  uint64_t id_;
};

/// An operation of the table.
struct PendingOperation {
  OperationNote note;
  double seconds;     ///< since it was begun
  std::string error;  ///< what the device reports; may be empty
  bool failed;        ///< the device reports an error
  Cause cause = Cause::kOwn;
};

/// The oldest operation of a device, or of a thread that is not the main one, that has failed or that runs. Probes may
/// block: for the watchdog, which is watched itself.
std::optional<PendingOperation> pending_operation();

}  // namespace vit_hybrid::comm
