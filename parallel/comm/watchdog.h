// Watchdog: the thread that turns a hang into one sentence.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

#include "parallel/comm/operation_slot.h"

namespace vit_hybrid::comm {

/// While it lives, an operation that is in flight for longer than `limit` (option --timeout), or
/// that the device reports as failed, ends the job with exit code 74 (kIo) and one line that names
/// the rank, host, axis, operation, bytes, phase, step and sequence number. For host tensors the
/// clock runs while the process is blocked in wait() or in a control message; for device tensors
/// from the start of the operation. It calls nothing of MPI but MPI_Abort.
class Watchdog {
 public:
  explicit Watchdog(std::chrono::duration<double> limit);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

 private:
  void watch();

  std::chrono::duration<double> limit_;
  std::mutex mutex_;
  std::condition_variable stop_requested_;
  bool stop_ = false;
  std::thread thread_;
};

/// The line the watchdog prints.
std::string overdue_text(const OverdueOperation& overdue, double limit_seconds);

}  // namespace vit_hybrid::comm
