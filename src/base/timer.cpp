// PhaseClock: pairs of events of a GPU, kept for the next phases; the end of a job by Slurm's environment.
#include "src/base/timer.h"

#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <charconv>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <exception>
#include <vector>

namespace vit_hybrid {

class PhaseClock::Events {
 public:
  explicit Events(c10::DeviceType device) : device_(device), guard_(device) {}

  int begin(double& sum) {
    if (used_ == pairs_.size()) {
      pairs_.emplace_back(device_);
    }
    pairs_[used_].sum = &sum;
    pairs_[used_].has_ended = false;
    pairs_[used_].begin.record(stream());
    return static_cast<int>(used_++);
  }

  void end(int number) {
    Pair& pair = pairs_[static_cast<size_t>(number)];
    pair.end.record(stream());
    pair.has_ended = true;
  }

  void collect() {
    for (size_t i = 0; i < used_; ++i) {
      const Pair& pair = pairs_[i];
      if (pair.has_ended) {  // else an exception left it
        pair.end.synchronize();
        *pair.sum += pair.begin.elapsedTime(pair.end) * 1e-3;
      }
    }
    used_ = 0;
  }

 private:
  struct Pair {
    explicit Pair(c10::DeviceType device)
        : begin(device, c10::EventFlag::BACKEND_DEFAULT), end(device, c10::EventFlag::BACKEND_DEFAULT) {}
    c10::Event begin, end;
    double* sum = nullptr;
    bool has_ended = false;
  };

  c10::Stream stream() const { return guard_.getStream(guard_.getDevice()); }

  c10::DeviceType device_;
  c10::impl::VirtualGuardImpl guard_;
  std::vector<Pair> pairs_;
  size_t used_ = 0;
};

PhaseClock::PhaseClock(c10::DeviceType device)
    : events_(device == c10::DeviceType::CPU ? nullptr : std::make_unique<Events>(device)) {}

PhaseClock::~PhaseClock() = default;

PhaseClock::Phase::Phase(PhaseClock& clock, double& sum)
    : clock_(clock), sum_(sum), number_(clock.events_ ? clock.events_->begin(sum) : 0) {}

PhaseClock::Phase::~Phase() {
  if (clock_.events_) {
    // After an error of the device the event's would hide it.
    if (std::uncaught_exceptions() == 0) {
      clock_.events_->end(number_);
    }
  } else {
    sum_ += timer_.seconds();
  }
}

void PhaseClock::collect() {
  if (events_) {
    events_->collect();
  }
}

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

}  // namespace vit_hybrid
