// Timer: wall-clock seconds, and the seconds of a scope added to a sum.
#pragma once

#include <chrono>

namespace vit_hybrid {

/// Seconds since construction or restart(), by the monotonic clock.
class Timer {
 public:
  double seconds() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }
  /// Seconds so far, and starts again.
  double restart() {
    const double elapsed = seconds();
    start_ = Clock::now();
    return elapsed;
  }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point start_ = Clock::now();
};

/// Adds the seconds of its life to `sum`.
class ScopedTimer {
 public:
  explicit ScopedTimer(double& sum) : sum_(sum) {}
  ~ScopedTimer() { sum_ += timer_.seconds(); }
  ScopedTimer(const ScopedTimer&) = delete;
  ScopedTimer& operator=(const ScopedTimer&) = delete;

 private:
  double& sum_;
  Timer timer_;
};

}  // namespace vit_hybrid
