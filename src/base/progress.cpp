// Progress: the thread that speaks, and when.
#include "src/base/progress.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <utility>

#include "src/base/log.h"
#include "src/base/quantity_text.h"
#include "src/base/text.h"

namespace vit_hybrid {

namespace {

constexpr double kMostBetweenLines = 60.0;
constexpr double kBetweenShown = 1.0;

// A thread that handles no signal: those are for the main thread.
template <class Function>
std::thread quiet_thread(Function function) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread thread(std::move(function));
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return thread;
}

}  // namespace

Progress::Progress(std::string what, int64_t total, double quiet) : what_(std::move(what)), total_(total) {
  if (is_log_speaker()) {
    speaker_ = quiet_thread([this, quiet] { speak(quiet); });
  }
}

Progress::~Progress() {
  if (speaker_.joinable()) {
    {
      const std::lock_guard lock(mutex_);
      is_over_ = true;
    }
    ended_.notify_one();
    speaker_.join();
  }
}

void Progress::speak(double quiet) {
  const bool is_shown = shows_progress();
  double next = is_shown ? kBetweenShown : quiet;
  std::unique_lock lock(mutex_);
  while (!ended_.wait_for(lock, std::chrono::duration<double>(next - timer_.seconds()), [&] { return is_over_; })) {
    if (is_shown) {
      show_progress(text());
    } else {
      log_line(text());
    }
    const double now = timer_.seconds();
    next = now + (is_shown ? kBetweenShown : std::min(now, kMostBetweenLines));
  }
}

std::string Progress::text() const {
  const double seconds = timer_.seconds();
  const int64_t done = std::min<int64_t>(done_, total_);
  if (done == 0) {
    return str(what_, ": ", rough_duration_text(seconds), " so far");
  }
  if (done == total_) {
    return str(what_, ": 100 % done, ", rough_duration_text(seconds), " so far");
  }
  const double rest = seconds * static_cast<double>(total_ - done) / static_cast<double>(done);
  return str(what_, ": ", 100 * done / total_, " % done, ", rough_duration_text(rest), " to go");
}

}  // namespace vit_hybrid
