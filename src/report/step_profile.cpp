// Begin and end of what profilers capture.
#include "src/report/step_profile.h"

#include <algorithm>
#include <vector>

#include "parallel/comm/agreement.h"
#include "parallel/comm/watchdog.h"
#include "src/base/device/profiler_capture.h"
#include "src/base/log.h"
#include "src/base/text.h"
#include "src/base/trace.h"

namespace vit_hybrid::train {

namespace {

// A perf that writes what it has to a slow disk answers later; others wait meanwhile, and their watchdogs must not
// judge that.
double patience() {
  return std::min(5.0, comm::watch_limit() / 4);
}

}  // namespace

StepProfile::StepProfile(const StepRange& steps, bool uses_gpu, const comm::MpiGroup& world)
    : StepWindow(steps, "--profile-steps " + steps.text(), "profile"), world_(world), uses_gpu_(uses_gpu) {
  perf_ = comm::agreed(world, [] { return PerfControl::of_environment(); });
  const auto profilers = world.all_gather(perf_ || (uses_gpu && has_device_profiler()) ? 1 : 0);
  num_captured_ = std::count(profilers.begin(), profilers.end(), 1);
  if (num_captured_ == 0) {
    log_warning(str("--profile-steps ", steps.text(),
                    " captures nothing: no profiler is attached; launch/profile attaches one to every rank"));
  }
}

int64_t StepProfile::tell(const std::string& problem) const {
  const std::vector<std::string> problems = world_.all_gather(problem);
  const auto has_text = [](const std::string& text) { return !text.empty(); };
  const auto count = std::count_if(problems.begin(), problems.end(), has_text);
  if (count > 0) {
    const auto first = std::find_if(problems.begin(), problems.end(), has_text);
    log_warning(str("the profile of rank ", first - problems.begin(),
                    count > 1 ? str(" (and of ", counted(static_cast<size_t>(count - 1), "other"), ")") : "",
                    " is lost, or not of these steps alone: ", *first));
  }
  return count;
}

void StepProfile::begin() {
  if (perf_) {
    problem_ = perf_->enable(patience());
    trace::start_naming_threads();
  } else if (uses_gpu_) {
    problem_ = start_device_capture();
  }
  num_captured_ -= tell(problem_);
}

void StepProfile::end(int64_t last) {
  std::string problem;
  if (perf_) {
    trace::stop_naming_threads();
    problem = perf_->disable(patience());
  } else if (uses_gpu_) {
    problem = stop_device_capture();
  }
  num_captured_ -= tell(problem_.empty() ? problem : "");  // one warning is enough
  if (num_captured_ > 0) {
    log_line(
        str(title(last), ": captured on ", num_captured_, " of ", counted(static_cast<size_t>(world_.size()), "rank")));
  }
}

}  // namespace vit_hybrid::train
