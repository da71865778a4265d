// When a window of steps begins and ends.
#include "src/report/step_window.h"

#include <algorithm>
#include <utility>

#include "src/base/error.h"
#include "src/base/log.h"
#include "src/base/text.h"

namespace vit_hybrid::train {

namespace {

std::string steps_text(int64_t first, int64_t last) {
  return first == last ? str("step ", first) : str("steps ", first, " to ", last);
}

}  // namespace

StepWindow::StepWindow(const options::StepRange& steps, std::string option, std::string what)
    : steps_(steps), option_(std::move(option)), what_(std::move(what)) {}

std::string StepWindow::title(int64_t last) const {
  return what_ + " of " + steps_text(steps_.first, last);
}

void StepWindow::fit(int64_t done, int64_t last) {
  if (steps_.last > last) {
    throw Error(
        ErrorClass::kUsage,
        str(option_, " is beyond the run, which ends with step ", last, "; allowed are steps ", done + 1, " to ", last),
        "steps count from the start of the run, before a resumption too");
  }
  if (steps_.last <= done) {
    log_line(str("no ", what_, ": ", steps_text(steps_.first, steps_.last),
                 " were done before, and the run goes on after step ", done));
    is_over_ = true;
  }
  steps_.first = std::max(steps_.first, done + 1);
}

bool StepWindow::turns_before(int64_t step) const {
  return !is_over_ && (is_open_ ? step > steps_.last : step >= steps_.first);
}

void StepWindow::turn_before(int64_t step) {
  if (is_open_) {
    is_over_ = true;
    end(step - 1);
  } else {
    is_open_ = true;
    begin();
  }
}

void StepWindow::end_run(int64_t step) {
  if (is_over_) {
    return;
  }
  is_over_ = true;
  if (is_open_) {
    end(step);
  } else {
    log_warning(str("no ", what_, ": the run was stopped after step ", step, ", before step ", steps_.first));
  }
}

}  // namespace vit_hybrid::train
