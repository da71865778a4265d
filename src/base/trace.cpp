// The recorder: a list of slices behind a mutex, and the texts that they point to.
#include "src/base/trace.h"

#include <sys/prctl.h>

#include <chrono>
#include <mutex>
#include <set>
#include <utility>

#include "src/base/device/profiler_ranges.h"
#include "src/base/text.h"

namespace vit_hybrid::trace {

namespace {

struct Recorder {
  std::mutex mutex;
  Recording recording;
  size_t most_events = 0;
};

// Never destroyed: threads may still record when static objects are.
Recorder& recorder() {
  static Recorder* const instance = new Recorder;
  return *instance;
}

}  // namespace

int64_t now() {
  using std::chrono::nanoseconds;
  return std::chrono::duration_cast<nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

const char* lasting(std::string_view text) {
  static std::mutex mutex;
  static auto* const texts = new std::set<std::string, std::less<>>;
  const std::lock_guard lock(mutex);
  const auto found = texts->find(text);
  return (found != texts->end() ? found : texts->emplace(text).first)->c_str();
}

std::string slice_name(const Event& event) {
  const std::string first = event.kind == Kind::kWait ? str("wait ", event.name) : std::string(event.name);
  if (event.kind == Kind::kStep) return str(first, " ", event.step);
  if (event.micro_batch >= 0) return str(first, " mb ", event.micro_batch);
  return *event.axis == '\0' ? first : str(first, " ", event.axis);
}

void start_recording(size_t most_events) {
  Recorder& all = recorder();
  {
    const std::lock_guard lock(all.mutex);
    all.recording = {};
    all.recording.events.reserve(most_events);
    all.most_events = most_events;
  }
  detail::listeners |= detail::kRecorder;
}

Recording stop_recording() {
  detail::listeners &= ~uint32_t{detail::kRecorder};
  Recorder& all = recorder();
  const std::lock_guard lock(all.mutex);
  all.most_events = 0;
  return std::exchange(all.recording, {});
}

void add(const Event& event) {
  if (!is_recording()) return;
  Recorder& all = recorder();
  const std::lock_guard lock(all.mutex);
  if (all.recording.events.size() < all.most_events) {
    all.recording.events.push_back(event);
  } else {
    ++all.recording.num_dropped;
  }
}

std::string attach_profiler() {
  std::string problem = open_profiler_ranges();
  if (problem.empty() && has_profiler_ranges()) detail::listeners |= detail::kProfiler;
  return problem;
}

void start_naming_threads() {
  detail::listeners |= detail::kThreadNames;
}

void stop_naming_threads() {
  detail::listeners &= ~uint32_t{detail::kThreadNames};
}

void Scope::begin(const Event& event) {
  heard_ = detail::listeners.load(std::memory_order_relaxed);
  if (event.kind == Kind::kWait) heard_ &= ~uint32_t{detail::kThreadNames};
  event_ = event;
  if ((heard_ & detail::kThreadNames) != 0) {
    prctl(PR_GET_NAME, thread_name_.data());
    prctl(PR_SET_NAME, event.name);
  }
  if ((heard_ & detail::kProfiler) != 0) begin_profiler_range(slice_name(event));
  event_.begin = now();
}

void Scope::end() {
  event_.end = now();
  if ((heard_ & detail::kThreadNames) != 0) prctl(PR_SET_NAME, thread_name_.data());
  if ((heard_ & detail::kProfiler) != 0) end_profiler_range();
  if ((heard_ & detail::kRecorder) != 0) add(event_);
}

void ProfilerRange::begin(const char* name, const char* axis) {
  begin_profiler_range(slice_name({.kind = Kind::kOperation, .name = name, .axis = axis}));
  is_open_ = true;
}

void ProfilerRange::end() {
  end_profiler_range();
}

}  // namespace vit_hybrid::trace
