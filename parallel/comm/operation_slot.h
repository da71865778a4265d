// What this process is waiting for: of the main thread on the node's board, of others and of devices in a table.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "parallel/comm/failure.h"
#include "parallel/comm/operation.h"

namespace vit_hybrid::comm {

class WatchedGroup;

using SlotClock = std::chrono::steady_clock;

/// The calling thread is blocked in `note` while this object lives. `note` must outlive it. Put it
/// around every call that can wait for another process. On the main thread it shows on the node's board.
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

/// A device operation is in flight while this object lives; `probe` looks at it without blocking
/// and is called from the watchdog's thread.
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
