// TimeLimit: how long this process may still run.
#pragma once

#include <cstdint>
#include <limits>
#include <string>

#include "src/base/timer.h"

namespace vit_hybrid::train {

/// The earlier of a number of seconds from construction and the end of the batch job. One rank's view: to be agreed on.
class TimeLimit {
 public:
  /// `seconds` 0: none; `job_end`: seconds since 1970, or 0 for none; `now` likewise.
  TimeLimit(double seconds, int64_t job_end, int64_t now);
  /// With the end that Slurm gives in SLURM_JOB_END_TIME, where it is set.
  static TimeLimit of_this_job(double seconds);

  bool is_set() const { return seconds_ < std::numeric_limits<double>::infinity(); }
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

}  // namespace vit_hybrid::train
