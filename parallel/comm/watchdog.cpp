// Watchdog: looks at the slot ten times in every limit.
#include "parallel/comm/watchdog.h"

#include <algorithm>
#include <cmath>

#include "parallel/comm/failure.h"
#include "src/base/error.h"
#include "src/base/text.h"

namespace vit_hybrid::comm {

Watchdog::Watchdog(std::chrono::duration<double> limit) : limit_(limit) {
  VH_ASSERT(limit.count() > 0, str("limit ", limit.count()));
  thread_ = std::thread([this] { watch(); });
}

Watchdog::~Watchdog() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  stop_requested_.notify_all();
  thread_.join();
}

void Watchdog::watch() {
  const auto period = std::clamp(limit_ / 10, std::chrono::duration<double>(0.01), std::chrono::duration<double>(1.0));
  std::unique_lock lock(mutex_);
  while (!stop_requested_.wait_for(lock, period, [this] { return stop_; })) {
    if (const auto overdue = overdue_operation(limit_.count())) {
      report_and_abort(overdue_text(*overdue, limit_.count()), static_cast<int>(ErrorClass::kIo), overdue->cause);
    }
  }
}

std::string overdue_text(const OverdueOperation& overdue, double limit_seconds) {
  const std::string place = process_place().text();
  const std::string who = place.empty() ? "this process" : place;
  if (overdue.failed) {
    return str("vit_hybrid: ", who, ": ", overdue.note.text(), " failed: ", overdue.remark,
               "; see the messages of the network and of NCCL (NCCL_DEBUG=WARN)");
  }
  const std::string known = overdue.remark.empty() ? "" : str("; ", overdue.remark);
  return str("vit_hybrid: ", who, " has waited ", std::llround(overdue.seconds * 10) / 10.0, " s for ",
             overdue.note.text(), known, "; the limit is --timeout ", limit_seconds,
             " s: another rank is stuck, slower than that, or gone");
}

}  // namespace vit_hybrid::comm
