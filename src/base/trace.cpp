// The recorder: a list of slices behind a mutex, and the texts that they point to.
#include "src/base/trace.h"

#include <sys/prctl.h>

#include <chrono>
#include <mutex>
#include <set>
#include <utility>

#include "src/base/text.h"

namespace vit_hybrid::trace {

namespace {

struct DeviceSlice {
  Event event;
  std::unique_ptr<DeviceMark> begin;
  std::unique_ptr<DeviceMark> end;
};

struct Recorder {
  std::mutex mutex;
  Recording recording;
  std::vector<DeviceSlice> on_device;
  MakeMark make_mark;
  size_t most_events = 0;

  bool has_room() {
    const bool room = recording.events.size() + on_device.size() < most_events;
    recording.num_dropped += room ? 0 : 1;
    return room;
  }
};

// Never destroyed: threads may still record when static objects are.
Recorder& recorder() {
  static Recorder* const instance = new Recorder;
  return *instance;
}

// Of steps, phases and copies.
std::unique_ptr<DeviceMark> mark_for(const Event& event) {
  if (event.kind > Kind::kCopy) return nullptr;
  Recorder& all = recorder();
  const std::lock_guard lock(all.mutex);
  return all.make_mark != nullptr ? all.make_mark() : nullptr;
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
  if ((event.kind == Kind::kStep || event.kind == Kind::kCopy) && event.step >= 0) return str(first, " ", event.step);
  if (event.micro_batch >= 0) return str(first, " mb ", event.micro_batch);
  return *event.axis == '\0' ? first : str(first, " ", event.axis);
}

void start_recording(size_t most_events, MakeMark make_mark) {
  Recorder& all = recorder();
  {
    const std::lock_guard lock(all.mutex);
    all.recording = {};
    all.on_device.clear();
    all.make_mark = std::move(make_mark);
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
  all.make_mark = nullptr;
  for (const DeviceSlice& slice : std::exchange(all.on_device, {})) {
    Event event = slice.event;
    event.on_device = true;
    event.begin = slice.begin->time();
    event.end = slice.end->time();
    all.recording.events.push_back(event);
  }
  return std::exchange(all.recording, {});
}

void add(const Event& event) {
  if (!is_recording()) return;
  Recorder& all = recorder();
  const std::lock_guard lock(all.mutex);
  if (all.has_room()) all.recording.events.push_back(event);
}

void add_on_device(const Event& event, std::unique_ptr<DeviceMark> begin, std::unique_ptr<DeviceMark> end) {
  if (!is_recording() || begin == nullptr || end == nullptr) return;
  Recorder& all = recorder();
  const std::lock_guard lock(all.mutex);
  if (all.has_room()) all.on_device.push_back({event, std::move(begin), std::move(end)});
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
  if ((heard_ & detail::kRecorder) != 0) mark_ = mark_for(event);
  event_.begin = now();
}

void Scope::end() {
  event_.end = now();
  if ((heard_ & detail::kThreadNames) != 0) prctl(PR_SET_NAME, thread_name_.data());
  if ((heard_ & detail::kProfiler) != 0) end_profiler_range();
  if ((heard_ & detail::kRecorder) != 0) add(event_);
  if (mark_ != nullptr) add_on_device(event_, std::move(mark_), mark_for(event_));
}

void ProfilerRange::begin(const char* name, const char* axis) {
  begin_profiler_range(slice_name({.kind = Kind::kOperation, .name = name, .axis = axis}));
  is_open_ = true;
}

void ProfilerRange::end() {
  end_profiler_range();
}

}  // namespace vit_hybrid::trace
