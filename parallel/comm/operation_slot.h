// The slot of the operation in flight: what this process is waiting for, for the watchdog to name.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "parallel/comm/failure.h"
#include "parallel/comm/operation.h"

namespace vit_hybrid::comm {

using SlotClock = std::chrono::steady_clock;

/// The calling thread is blocked in `note` while this object lives. `note` must outlive it. Put it
/// around every call that can wait for another process.
class BlockedScope {
 public:
  explicit BlockedScope(const OperationNote& note);
  ~BlockedScope();
  BlockedScope(const BlockedScope&) = delete;
  BlockedScope& operator=(const BlockedScope&) = delete;

  double seconds() const;
  /// Adds to what is known: "ranks 2 and 5 have not come". Replaces an earlier remark.
  void remark(std::string text);

 private:
  uint64_t id_;
  SlotClock::time_point since_;
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

/// What has gone wrong with an operation of the slot.
struct OverdueOperation {
  OperationNote note;
  double seconds;      ///< since it was begun
  std::string remark;  ///< what is known besides; may be empty
  bool failed;         ///< the device reports an error (in remark); else it has outlasted the limit
  Cause cause = Cause::kOwn;
};

/// The oldest operation that has failed or has been in flight for more than `limit_seconds`.
std::optional<OverdueOperation> overdue_operation(double limit_seconds);

}  // namespace vit_hybrid::comm
