// Timer: wall-clock seconds; PhaseClock: seconds of phases of work on a device.
#pragma once

#include <c10/core/DeviceType.h>

#include <chrono>
#include <memory>

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

/// A GPU does its work after the host has asked for it, so there a phase begins and ends where the current stream gets
/// to it, and its seconds are known only when it has. Used by one thread.
class PhaseClock {
 public:
  /// A phase from its making to its end. Phases may lie in each other.
  class Phase {
   public:
    ~Phase();
    Phase(const Phase&) = delete;
    Phase& operator=(const Phase&) = delete;

   private:
    friend class PhaseClock;
    Phase(PhaseClock& clock, double& sum);

    PhaseClock& clock_;
    double& sum_;
    Timer timer_;
    int number_ = 0;  // of the events; the CPU has none
  };

  explicit PhaseClock(c10::DeviceType device);
  ~PhaseClock();
  PhaseClock(const PhaseClock&) = delete;
  PhaseClock& operator=(const PhaseClock&) = delete;

  /// The seconds of what follows are added to `sum`: on the CPU when the result ends, on a GPU in collect(), which
  /// `sum` has to outlive.
  [[nodiscard]] Phase measure(double& sum) { return {*this, sum}; }
  /// Waits until the device has come to the end of all phases, and adds their seconds. Nothing is left to do on the
  /// CPU.
  void collect();

 private:
  class Events;
  std::unique_ptr<Events> events_;  // null on the CPU
};

}  // namespace vit_hybrid
