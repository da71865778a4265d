// Timer: wall-clock seconds; PhaseClock: seconds of phases of work on a device; TimeLimit: how long a job may run.
#pragma once

#include <c10/core/DeviceType.h>

#include <chrono>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>

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

/// The earlier of a number of seconds from construction and the end of the batch job. One rank's view: to be agreed on.
class TimeLimit {
 public:
  /// `seconds` 0: none; `job_end`: seconds since 1970, or 0 for none; `now` likewise.
  TimeLimit(double seconds, int64_t job_end, int64_t now);
  /// With the end that Slurm gives in SLURM_JOB_END_TIME, where it is set.
  static TimeLimit of_this_job(double seconds);

  /// Infinite without a limit.
  double seconds_left() const { return seconds_ - timer_.seconds(); }
  /// Whether there is no time for `next` seconds of work and then a save of `save` seconds, twice as slow as expected.
  bool is_near(double next, double save) const { return seconds_left() < 2.0 * (next + save); }
  /// "--time-limit" or "the end of the Slurm job".
  const std::string& name() const { return name_; }

 private:
  Timer timer_;
  double seconds_ = std::numeric_limits<double>::infinity();
  std::string name_ = "--time-limit";
};

}  // namespace vit_hybrid
