// TimeLimit: from the option and from the environment.
#include "src/config/time_limit.h"

#include <charconv>
#include <cstdlib>
#include <cstring>
#include <ctime>

namespace vit_hybrid::train {

TimeLimit::TimeLimit(double seconds, int64_t job_end, int64_t now) {
  if (seconds > 0.0) {
    seconds_ = seconds;
  }
  if (job_end > 0 && static_cast<double>(job_end - now) < seconds_) {
    seconds_ = static_cast<double>(job_end - now);
    name_ = "the end of the Slurm job";
  }
}

TimeLimit TimeLimit::of_this_job(double seconds) {
  const char* const slurm = std::getenv("SLURM_JOB_END_TIME");
  int64_t end = 0;
  if (slurm != nullptr) {
    std::from_chars(slurm, slurm + std::strlen(slurm), end);
  }
  return {seconds, end, static_cast<int64_t>(std::time(nullptr))};
}

}  // namespace vit_hybrid::train
