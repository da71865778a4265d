// When a window of steps begins and ends; the FIFOs of perf's --control, and begin and end of what profilers capture.
#include "src/report/step_window.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <string_view>
#include <utility>
#include <vector>

#include "parallel/comm/agreement.h"
#include "parallel/comm/watchdog.h"
#include "src/base/error.h"
#include "src/base/log.h"
#include "src/base/text.h"
#include "src/base/timer.h"
#include "src/base/trace.h"
#include "src/base/utf8.h"

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

namespace {

constexpr const char* kVariable = "PERF_RECORD_CONTROL";

// An end of a FIFO, which never blocks; -1 and a reason where it cannot be had.
class Fifo {
 public:
  Fifo(const std::string& path, int access) : file_(open(path.c_str(), access | O_NONBLOCK | O_CLOEXEC)) {
    struct stat status = {};
    if (file_ < 0) {
      problem_ = errno == ENXIO ? "perf has ended" : str("'", shown(path), "' cannot be opened: ", reason(errno));
    } else if (fstat(file_, &status) != 0 || !S_ISFIFO(status.st_mode)) {
      problem_ = str("'", shown(path), "' of ", kVariable, " is no FIFO");
    }
  }
  ~Fifo() {
    if (file_ >= 0) close(file_);
  }
  Fifo(const Fifo&) = delete;
  Fifo& operator=(const Fifo&) = delete;

  int file() const { return file_; }
  const std::string& problem() const { return problem_; }

  // What is there to read now.
  std::string text() const {
    std::array<char, 64> buffer{};
    std::string all;
    for (ssize_t count = 0; (count = read(file_, buffer.data(), buffer.size())) > 0;) {
      all.append(buffer.data(), static_cast<size_t>(count));
    }
    return all;
  }

 private:
  int file_;
  std::string problem_;
};

// Waits for "ack" and its newline.
std::string await_answer(const Fifo& answers, double patience) {
  const Timer timer;
  std::string text;
  while (timer.seconds() < patience) {
    pollfd waited{answers.file(), POLLIN, 0};
    poll(&waited, 1, static_cast<int>((patience - timer.seconds()) * 1e3) + 1);
    text += answers.text();
    if (text.find("ack\n") != std::string::npos) return {};
    if ((waited.revents & POLLHUP) != 0) return "perf has ended";
  }
  return str("perf does not answer (for ", fixed_text(patience, 1), " s)");
}

}  // namespace

PerfControl::PerfControl(std::string commands, std::string answers)
    : commands_(std::move(commands)), answers_(std::move(answers)) {}

std::optional<PerfControl> PerfControl::of_environment() {
  constexpr std::string_view kHead = "fifo:";
  const char* const value = std::getenv(kVariable);
  if (value == nullptr) return std::nullopt;
  const std::string_view text(value);
  const size_t comma = text.find(',');
  if (!text.starts_with(kHead) || comma == std::string_view::npos || comma == kHead.size() ||
      comma + 1 == text.size()) {
    throw Error(ErrorClass::kUsage, str("the variable ", kVariable, " is '", shown(std::string(text)), "'"),
                "it is fifo:COMMANDS,ANSWERS, as the --control of the perf record that runs the program");
  }
  return PerfControl(std::string(text.substr(kHead.size(), comma - kHead.size())), std::string(text.substr(comma + 1)));
}

std::string PerfControl::enable(double patience) {
  return ask("enable\n", patience);
}

std::string PerfControl::disable(double patience) {
  return ask("disable\n", answers_in_time_ ? patience : 0.0);
}

std::string PerfControl::ask(const std::string& command, double patience) {
  const Fifo answers(answers_, O_RDONLY);
  if (!answers.problem().empty()) return answers.problem();
  answers.text();                          // late ones
  const Fifo reader(commands_, O_WRONLY);  // fails where nobody reads
  if (!reader.problem().empty()) return reader.problem();
  // Being a reader too, this process gets no SIGPIPE when perf ends meanwhile.
  const Fifo commands(commands_, O_RDWR);
  if (!commands.problem().empty()) return commands.problem();
  if (write(commands.file(), command.data(), command.size()) != std::ssize(command)) {
    return str("perf takes no commands: ", reason(errno));
  }
  if (patience <= 0) return {};
  std::string problem = await_answer(answers, patience);
  answers_in_time_ = problem.empty();
  return problem;
}

namespace {

// A perf that writes what it has to a slow disk answers later; others wait meanwhile, and their watchdogs must not
// judge that.
double patience() {
  return std::min(5.0, comm::watch_limit() / 4);
}

}  // namespace

StepProfile::StepProfile(const options::StepRange& steps, bool uses_gpu, const comm::MpiGroup& world)
    : StepWindow(steps, "--profile-steps " + steps.text(), "profile"), world_(world), uses_gpu_(uses_gpu) {
  perf_ = comm::agreed(world, [] { return PerfControl::of_environment(); });
  num_captured_ = world.sum(perf_ || (uses_gpu && trace::has_device_profiler()) ? 1 : 0);
  if (num_captured_ == 0) {
    log_warning(str("--profile-steps ", steps.text(),
                    " captures nothing: no profiler is attached; launch/profile attaches one to every rank"));
  }
}

int64_t StepProfile::tell(const std::string& problem) const {
  const int64_t count = world_.sum(problem.empty() ? 0 : 1);
  if (count > 0) {
    const auto first = static_cast<int>(world_.min(problem.empty() ? world_.size() : world_.rank()));
    log_warning(str("the profile of rank ", first,
                    count > 1 ? str(" (and of ", counted(static_cast<size_t>(count - 1), "other"), ")") : "",
                    " is lost, or not of these steps alone: ", world_.broadcast(problem, first)));
  }
  return count;
}

void StepProfile::begin() {
  if (perf_) {
    problem_ = perf_->enable(patience());
    trace::start_naming_threads();
  } else if (uses_gpu_) {
    problem_ = trace::start_device_capture();
  }
  num_captured_ -= tell(problem_);
}

void StepProfile::end(int64_t last) {
  std::string problem;
  if (perf_) {
    trace::stop_naming_threads();
    problem = perf_->disable(patience());
  } else if (uses_gpu_) {
    problem = trace::stop_device_capture();
  }
  num_captured_ -= tell(problem_.empty() ? problem : "");  // one warning is enough
  if (num_captured_ > 0) {
    log_line(
        str(title(last), ": captured on ", num_captured_, " of ", counted(static_cast<size_t>(world_.size()), "rank")));
  }
}

}  // namespace vit_hybrid::train
